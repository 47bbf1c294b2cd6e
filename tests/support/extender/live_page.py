"""The live page over a cluster in memory, served from a thread as behind the API server; tests change the cluster meanwhile."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

import uvicorn
from fastapi import FastAPI

from kompakt_extender.health import health_app
from kompakt_extender.main import listen, server
from tests.support.extender.explain_client import ExplainClient, proxied
from tests.support.extender.guard import TOKEN, guarded_by
from tests.support.extender.leader import Leader
from tools.browser import Browser

PROXY = "/api/v1/namespaces/kompakt-system/services/kompakt-explain:http/proxy"


class ServedCluster:
    """A cluster that a thread serves. `do` runs a coroutine there, which may change it."""

    def __init__(self, client: ExplainClient, loop: asyncio.AbstractEventLoop, port: int) -> None:
        self.client, self._loop, self.port = client, loop, port
        self.base = f"http://127.0.0.1:{port}{PROXY}"

    @property
    def leader(self) -> Leader:
        return self.client.leader

    def do(self, act: Callable[[Leader], Coroutine[Any, Any, None]]) -> None:
        asyncio.run_coroutine_threadsafe(act(self.leader), self._loop).result(60)

    def open(self, browser: Browser) -> None:
        """The page with a token, once it shows the cluster."""
        browser.open(f"{self.base}/ui/")
        browser.until("!document.getElementById('ask-token').hidden")
        browser.evaluate(
            f"document.getElementById('token').value = '{TOKEN}'; document.getElementById('ask-token').requestSubmit()"
        )
        browser.until("document.getElementById('link').dataset.state === 'live'")


@contextmanager
def served(client: Coroutine[Any, Any, ExplainClient]) -> Iterator[ServedCluster]:
    """Until the end of the block."""
    listening = listen("127.0.0.1", 0)
    started: Future[tuple[ServedCluster, uvicorn.Server]] = Future()

    async def serve() -> None:
        try:
            made, elsewhere = await client, FastAPI(docs_url=None, openapi_url=None)
            health = health_app(made, made.leader.metrics, guarded_by(made.api_server))
            serves = server(proxied(health, PROXY, elsewhere))
            serves.leaving = health.state.leaving
        except BaseException as error:
            started.set_exception(error)
            raise
        started.set_result((ServedCluster(made, asyncio.get_running_loop(), listening.getsockname()[1]), serves))
        await serves.serve([listening])

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    found, serves = started.result(60)
    try:
        yield found
    finally:
        serves.should_exit = True
        thread.join(20)
