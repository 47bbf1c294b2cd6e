"""The API server as far as `kompakt explain` meets it, and a kubeconfig that names it."""

from pathlib import Path
from typing import Any

import yaml
from fastapi import FastAPI
from fastapi.responses import JSONResponse

from kompakt_extender.health import health_app
from tests.support.extender.asking import Person, proxied

PROXY = "/api/v1/namespaces/kompakt-system/services/kompakt-explain:http/proxy"


class Standin:
    """The API server as far as the command meets it: a proxy path, and its own words elsewhere."""

    def __init__(self, person: Person) -> None:
        self.person = person
        elsewhere = FastAPI()
        self.tokens: set[str | None] = set()
        health = health_app(person, person.office.metrics)

        @health.middleware("http")
        async def authenticate(request: Any, call_next: Any) -> Any:
            self.tokens.add(request.headers.get("authorization"))
            if request.headers.get("authorization") == "Bearer nobody":
                return JSONResponse({"kind": "Status", "message": 'services "x" is forbidden: User "nobody" cannot'}, 403)
            return await call_next(request)

        @elsewhere.exception_handler(404)
        async def missing(request: Any, error: Any) -> JSONResponse:
            return JSONResponse({"kind": "Status", "message": "services not found"}, 404)

        self.app = proxied(health, PROXY, elsewhere)


def kubeconfig(folder: Path, port: int, token: str = "mine", namespace: str = "default") -> Path:
    path = folder / f"{token}.yaml"
    context = {"cluster": "here", "user": token, "namespace": namespace}
    path.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "here",
                "clusters": [{"name": "here", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
                "users": [{"name": token, "user": {"token": token}}],
                "contexts": [{"name": "here", "context": context}],
            }
        )
    )
    return path
