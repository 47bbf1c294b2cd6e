"""A stream of the health app read event by event, without a network between: the app's own messages."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI

from tests.support.extender.guard import HEADERS

SECONDS = 10.0


class PageStream:
    """One page that reads /v1alpha1/events. `reads`: whether it takes what is sent."""

    def __init__(self, app: FastAPI, headers: Mapping[str, str] = HEADERS) -> None:
        self.status, self.reads = 0, True
        self._events: asyncio.Queue[tuple[str, dict[str, Any]]] = asyncio.Queue()
        self._closing, self._text, self._asked = asyncio.Event(), b"", False
        raw = [(key.lower().encode(), value.encode()) for key, value in headers.items()]
        path = "/v1alpha1/events"
        scope = {"type": "http", "method": "GET", "path": path, "raw_path": path.encode(), "query_string": b"", "headers": raw}
        self.task = asyncio.create_task(app(scope | {"http_version": "1.1", "scheme": "http"}, self._receive, self._send))

    async def event(self) -> tuple[str, dict[str, Any]]:
        """The next one."""
        return await asyncio.wait_for(self._events.get(), SECONDS)

    async def until(self, kind: str) -> dict[str, Any]:
        """The next one of a kind."""
        while (found := await self.event())[0] != kind:
            pass
        return found[1]

    async def close(self) -> None:
        """The page goes."""
        self._closing.set()
        await asyncio.wait_for(self.task, SECONDS)

    async def _receive(self) -> dict[str, Any]:
        if not self._asked:
            self._asked = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await self._closing.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Mapping[str, Any]) -> None:
        while not self.reads:
            await asyncio.sleep(0)
        self.status = message.get("status", self.status)
        *whole, self._text = (self._text + message.get("body", b"")).split(b"\n\n")
        for one in whole:
            if one.startswith(b"event: "):
                kind, _, data = one.removeprefix(b"event: ").partition(b"\ndata: ")
                self._events.put_nowait((kind.decode(), json.loads(data)))
