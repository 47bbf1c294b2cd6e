"""An API server played by the objects of the extender's tests, over HTTP: lists, watches and the writes that the extender makes.

Objects, and what becomes of a write, are those of tests/support/extender/world.py. Nothing is stored, nobody is asked for a
token, and a watch never ends; what a list or a watch costs the extender is what it costs in a cluster.
"""

import asyncio
import json
from collections import defaultdict, deque
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import parse_qs

import msgspec

from kompakt_client.errors import ApiError
from kompakt_core import contract as c
from tests.support.extender.world import World

STORES: Final = {
    "pods": "pods", "nodes": "nodes", c.TOPOLOGY_PLURAL: "topologies", c.JOB_PLURAL: "jobs", c.LIMITS_PLURAL: "limits",
    "namespaces": "namespaces",
}  # fmt: skip
BOOKMARK_SECONDS: Final = 20.0
PAST: Final = 20_000  # changes that a watch may begin before
Watching = asyncio.Queue[bytes | None]  # None: the watch ends


class WatchedWorld(World):
    """A World whose changes go to watches."""

    def __init__(self) -> None:
        super().__init__()
        self.version = 0
        self.watches: dict[str, set[Watching]] = defaultdict(set)
        self.past: dict[str, deque[tuple[int, bytes]]] = defaultdict(lambda: deque(maxlen=PAST))
        self.written: Callable[[str, str], None] = lambda path, name: None  # called with what the extender has changed

    def put(self, store: str, key: str, made: dict[str, Any]) -> dict[str, Any]:
        kind = b"MODIFIED" if key in getattr(self, store) else b"ADDED"
        super().put(store, key, made)
        _, _, raw = self.news.pop()
        self._tell(store, kind, raw or b"", made)
        return made

    def delete_pod(self, name: str) -> None:
        gone = self.pods[name]
        super().delete_pod(name)
        self.news.clear()
        self._gone("pods", gone)

    def delete_job(self, name: str) -> None:
        self._gone("jobs", self.jobs.pop(name))

    def _gone(self, store: str, gone: dict[str, Any]) -> None:
        gone["metadata"]["resourceVersion"] = str(next(self._versions))
        self._tell(store, b"DELETED", msgspec.json.encode(gone), gone)

    def _tell(self, store: str, kind: bytes, raw: bytes, made: dict[str, Any]) -> None:
        self.version = int(made["metadata"]["resourceVersion"])
        line = b'{"type":"' + kind + b'","object":' + raw + b"}\n"
        self.past[store].append((self.version, line))
        for watch in self.watches[store]:
            watch.put_nowait(line)

    def end_watches(self) -> None:
        for watches in self.watches.values():
            for watch in watches:
                watch.put_nowait(None)


class PlayedApi:
    """An ASGI application over one such world."""

    def __init__(self, world: WatchedWorld) -> None:
        self._world = world

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        query = {key: values[-1] for key, values in parse_qs(scope["query_string"].decode()).items()}
        path, store = scope["path"], STORES.get(scope["path"].split("/")[-1])
        if scope["method"] != "GET":
            return await _answer(send, *await self._write(scope["method"], path, await _body(receive)))
        if store is None:
            found = await self._world.send("GET", path)
            return await _answer(send, found.status, found.body)
        if "watch" in query:
            return await self._watch(store, int(query.get("resourceVersion", 0)), receive, send)
        return await _answer(send, 200, self._list(store))

    def _list(self, store: str) -> bytes:
        items = list(getattr(self._world, store).values())
        return msgspec.json.encode({"metadata": {"resourceVersion": str(self._world.version)}, "items": items})

    async def _watch(self, store: str, since: int, receive: Any, send: Any) -> None:
        queue: Watching = asyncio.Queue()
        for version, past in self._world.past[store]:
            if version > since:
                queue.put_nowait(past)
        self._world.watches[store].add(queue)
        left = asyncio.create_task(_until_left(receive, queue))
        try:
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]})
            while (line := await self._next(queue)) is not None:
                await send({"type": "http.response.body", "body": line, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        finally:
            left.cancel()
            self._world.watches[store].discard(queue)

    async def _next(self, queue: Watching) -> bytes | None:
        """A change, or a bookmark where nothing changes."""
        try:
            async with asyncio.timeout(BOOKMARK_SECONDS):
                return await queue.get()
        except TimeoutError:
            bookmark = {"metadata": {"resourceVersion": str(self._world.version)}}
            return msgspec.json.encode({"type": "BOOKMARK", "object": bookmark}) + b"\n"

    async def _write(self, method: str, path: str, body: bytes) -> tuple[int, bytes]:
        try:
            found = await self._world.send(method, path, body=json.loads(body) if body else None)
        except ApiError as error:
            return error.status or 503, json.dumps({"message": str(error)}).encode()
        self._world.written(path, path.split("/")[-2])
        return found.status, found.body


async def _body(receive: Any) -> bytes:
    body: bytes = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            return body


async def _answer(send: Any, status: int, body: bytes) -> None:
    await send({"type": "http.response.start", "status": status, "headers": [(b"content-type", b"application/json")]})
    await send({"type": "http.response.body", "body": body})


async def _until_left(receive: Any, queue: Watching) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    queue.put_nowait(None)
