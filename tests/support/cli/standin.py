"""The API server as far as `kompakt explain` meets it, and a kubeconfig that names it."""

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse

from kompakt_extender.health import health_app
from kompakt_extender.main import listen, server
from tests.support.client.kubeconfigs import write_kubeconfig
from tests.support.extender.explain_client import ExplainClient, proxied
from tests.support.extender.guard import TOKEN, guarded_by

PROXY = "/api/v1/namespaces/kompakt-system/services/kompakt-explain:http/proxy"


class Standin:
    """The API server as far as the command meets it: a proxy path, and its own words elsewhere."""

    def __init__(self, client: ExplainClient) -> None:
        self.client = client
        elsewhere = FastAPI()
        self.tokens: set[str | None] = set()
        self.requests = 0
        self.granted: list[tuple[str, dict[str, Any]]] = []
        health = health_app(client, client.leader.metrics, guarded_by(client.api_server))

        @health.middleware("http")
        async def authenticate(request: Any, call_next: Any) -> Any:
            self.requests += 1
            self.tokens.add(request.headers.get("authorization"))
            if request.headers.get("authorization") == "Bearer nobody":
                return JSONResponse({"kind": "Status", "message": 'services "x" is forbidden: User "nobody" cannot'}, 403)
            return await call_next(request)

        @elsewhere.post("/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token")
        async def token(request: Request, namespace: str, name: str, body: dict[str, Any]) -> JSONResponse:
            self.granted.append((f"{namespace}/{name}", body))
            if request.headers.get("authorization") == "Bearer no-tokens":
                return JSONResponse({"kind": "Status", "message": "serviceaccounts/token is forbidden"}, 403)
            if name.startswith("absent"):
                return JSONResponse({"kind": "Status", "message": f'serviceaccounts "{name}" not found'}, 404)
            found = TOKEN if name == "kompakt-explain-reader" else f"token-of-{name}"
            return JSONResponse({**body, "status": {"token": found}}, 201)

        @elsewhere.exception_handler(404)
        async def missing(request: Any, error: Any) -> JSONResponse:
            return JSONResponse({"kind": "Status", "message": "services not found"}, 404)

        self.app = proxied(health, PROXY, elsewhere)


@contextmanager
def serving(client: Coroutine[Any, Any, ExplainClient]) -> Iterator[tuple[Standin, int]]:
    """A stand-in over this cluster that serves from a thread of its own, and its port; what breaks there is raised."""
    listening = listen("127.0.0.1", 0)
    started: Future[tuple[Standin, uvicorn.Server]] = Future()

    async def serve() -> None:
        standin = Standin(await client)
        serves = server(standin.app)
        startup = serves.startup

        async def announced(sockets: Any = None) -> None:
            await startup(sockets=sockets)
            started.set_result((standin, serves))

        serves.startup = announced  # type: ignore[method-assign]
        await serves.serve([listening])

    def run() -> None:
        try:
            asyncio.run(serve())
        except BaseException as error:
            if started.done():
                raise
            started.set_exception(error)

    thread = threading.Thread(target=run)
    thread.start()
    standin, serves = started.result(60)
    try:
        yield standin, listening.getsockname()[1]
    finally:
        serves.should_exit = True
        thread.join(10)


def kubeconfig(folder: Path, port: int, token: str = "mine", namespace: str = "default") -> Path:
    server = f"http://127.0.0.1:{port}"
    return write_kubeconfig(folder / f"{token}.yaml", server, name="here", user={"token": token}, namespace=namespace)
