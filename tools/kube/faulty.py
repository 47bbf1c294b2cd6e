"""`python -m tools.kube.faulty`: a real proxy before an API server that spoils a share of all requests.

A spoilt request is, by chance, refused with 500, refused with 503, cut off unanswered, or (the worst of them) performed and then
cut off, so that its sender cannot know. A spoilt watch is cut off after a while. The choices follow from the seed.
PUT a list of plurals to /faulty/silent, and watches of these kinds are accepted and say nothing until the list changes again.
PUT `{"rate": 0.5, "ways": ["429"], "delay": 2, "only": "/binding"}` to /faulty/trouble, and from then on that share of requests
for such paths is spoilt in these ways (429 is one more: refused as by an API server that throttles, watches too), and each of
them waits so many seconds before it is handed on. Without `only` it is so for all.
"""

import argparse
import asyncio
import random
import ssl
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import aiohttp
from aiohttp import web
from yarl import URL

WAYS: Final = ("500", "503", "cut before", "cut after")
THROTTLED: Final = "429"
RETRY_AFTER: Final = {"Retry-After": "1"}  # what an API server asks of those whom it throttles
LOOK: Final = 0.1  # seconds
WATCH_SECONDS: Final = 3.0  # how long a spoilt watch lasts at most
HOP_BY_HOP: Final = frozenset({"connection", "transfer-encoding", "keep-alive", "upgrade", "host", "content-length"})
PACKING: Final = frozenset({"accept-encoding"})  # a packed watch would be handed on in lumps


@dataclass
class Faulty:
    """Hands requests on to `upstream`; `rate` of them it spoils."""

    upstream: str
    session: aiohttp.ClientSession
    rate: float
    chance: random.Random
    counts: Counter[str] = field(default_factory=Counter)
    silent: frozenset[str] = frozenset()
    ways: Sequence[str] = WAYS
    delay: float = 0.0  # seconds
    only: str = ""  # the end of paths that are meant

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """One request."""
        self.counts["all"] += 1
        meant = request.path.endswith(self.only)
        way = self.chance.choice(self.ways) if meant and self.chance.random() < self.rate else ""
        watch = request.query.get("watch") in ("true", "1")
        self.counts[way or "well"] += 1
        await asyncio.sleep(self.delay if meant else 0)
        if way == THROTTLED:
            return web.json_response(_status("throttled", 429), status=429, headers=RETRY_AFTER)
        if way in ("500", "503") and not watch:
            return web.json_response(_status("spoilt", int(way)), status=int(way))
        if way == "cut before":
            return self._cut(request)
        return await self._forward(request, way, watch)

    async def _forward(self, request: web.Request, way: str, watch: bool) -> web.StreamResponse:
        headers = {name: value for name, value in request.headers.items() if name.lower() not in HOP_BY_HOP | PACKING}
        body = await request.read()
        async with self.session.request(
            request.method,
            URL(self.upstream + request.raw_path, encoded=True),
            headers=headers,
            data=body or None,
            allow_redirects=False,
        ) as answer:
            if way == "cut after" and not watch:
                await answer.read()
                return self._cut(request)
            limit = self.chance.uniform(0, WATCH_SECONDS) if way else None
            return await self._answer(request, answer, limit, watch)

    async def _answer(
        self, request: web.Request, answer: aiohttp.ClientResponse, limit: float | None, watch: bool
    ) -> web.StreamResponse:
        kept = {name: value for name, value in answer.headers.items() if name.lower() not in HOP_BY_HOP}
        told = web.StreamResponse(status=answer.status, headers=kept)
        await told.prepare(request)
        try:
            async with asyncio.timeout(limit):
                async for chunk in answer.content.iter_any():
                    while watch and request.path.rsplit("/", 1)[-1] in self.silent:
                        await asyncio.sleep(LOOK)
                    await told.write(chunk)
        except (TimeoutError, aiohttp.ClientError):
            return self._cut(request)
        await told.write_eof()
        return told

    async def silence(self, request: web.Request) -> web.Response:
        """Which kinds of watches say nothing from now on."""
        self.silent = frozenset(await request.json())
        return web.json_response(sorted(self.silent))

    async def trouble(self, request: web.Request) -> web.Response:
        """What is spoilt from now on, and how."""
        told = await request.json()
        self.rate, self.ways = told["rate"], told.get("ways") or WAYS
        self.delay, self.only = told.get("delay", 0.0), told.get("only", "")
        return web.json_response(told)

    @staticmethod
    def _cut(request: web.Request) -> web.StreamResponse:
        if request.transport is not None:
            request.transport.abort()
        return web.Response(status=500)

    async def tell(self, request: web.Request) -> web.Response:
        """What was done so far."""
        return web.json_response(dict(self.counts))


def _status(message: str, code: int) -> dict[str, object]:
    return {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "code": code}


async def serve(options: argparse.Namespace) -> None:
    """Until cancelled."""
    upstream = ssl.create_default_context(cafile=options.authority)
    own = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    own.load_cert_chain(options.certificate, options.key)
    connector = aiohttp.TCPConnector(ssl=upstream, limit=0)
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout, skip_auto_headers=PACKING) as session:
        faulty = Faulty(options.upstream, session, options.rate, random.Random(options.seed))
        app = web.Application(client_max_size=16 << 20)
        app.router.add_get("/faulty", faulty.tell)
        app.router.add_put("/faulty/silent", faulty.silence)
        app.router.add_put("/faulty/trouble", faulty.trouble)
        app.router.add_route("*", "/{path:.*}", faulty.handle)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", options.port, ssl_context=own).start()
        await asyncio.Event().wait()


def main() -> None:
    """Runs until it is killed."""
    parser = argparse.ArgumentParser(prog="python -m tools.kube.faulty", description=__doc__)
    parser.add_argument("--upstream", required=True, help="the API server's address, https://...")
    parser.add_argument("--port", required=True, type=int, help="on 127.0.0.1")
    parser.add_argument("--rate", type=float, default=0.1, help="share of requests that are spoilt (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the choices")
    for name in ("certificate", "key", "authority"):
        parser.add_argument(f"--{name}", required=True, type=Path, help="file")
    asyncio.run(serve(parser.parse_args()))


if __name__ == "__main__":
    main()
