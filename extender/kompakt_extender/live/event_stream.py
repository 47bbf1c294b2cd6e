"""An answer that does not end by itself: events as they come, a sign of life in between, and at last why it ends."""

import asyncio
import json
import random
from collections.abc import Awaitable, Callable
from typing import Final

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from kompakt_client.reviews import AccessRefused
from kompakt_extender.explain.bounded_executor import Busy
from kompakt_extender.live.feed import event_of
from kompakt_extender.live.listener import PageListener
from kompakt_extender.live.overview import Visible

ALIVE_SECONDS: Final = 15.0
CHECK_SECONDS: Final = 20.0  # with what Reviews keep, a right that is gone ends a stream after at most 35 s
SLOW_SECONDS: Final = 20.0  # the most that a page may take to read one event
_TRIES: Final = 5
_HEADERS: Final = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]


class EventStream(Response):
    """Tells one listener until the page goes, the listener ends, or `check` refuses. `left` hears when it is over."""

    def __init__(
        self, listener: PageListener, check: Callable[[], Awaitable[Visible]], left: Callable[[PageListener], None]
    ) -> None:
        super().__init__(media_type="text/event-stream")
        self._listener, self._check, self._left = listener, check, left

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        checking = asyncio.create_task(self._keep_checking())
        ends = [asyncio.create_task(_closed(receive)), asyncio.create_task(self._tell(send))]
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._left(self._listener)
            for task in (checking, *ends):
                task.cancel()
            await asyncio.gather(checking, *ends, return_exceptions=True)

    async def _tell(self, send: Send) -> None:
        async def chunk(body: bytes, more: bool = True) -> None:
            async with asyncio.timeout(SLOW_SECONDS):
                await send({"type": "http.response.body", "body": body, "more_body": more})

        await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        await chunk(b": kompakt\n\n")
        while self._listener.ended is None:
            event = await self._listener.next(ALIVE_SECONDS)
            if event is not None or self._listener.ended is None:
                await chunk(event or b": alive\n\n")
        status, why = self._listener.ended
        await chunk(event_of("end", json.dumps({"status": status, "detail": why}).encode()), more=False)

    async def _keep_checking(self) -> None:
        """Ends the listener as soon as its token or its right is found gone."""
        while True:
            await asyncio.sleep(CHECK_SECONDS + 5 * random.random())
            try:
                self._listener.see(await self._checked())
            except AccessRefused as error:
                return self._listener.end(error.status, str(error))
            except Exception as error:  # a stream whose right nobody checks any more must not go on
                return self._listener.end(503, f"the right to this page could not be checked: {error}; it begins anew")

    async def _checked(self) -> Visible:
        """As `check`, and again where too many ask at once. Raises AccessRefused."""
        for _ in range(_TRIES):
            try:
                return await self._check()
            except Busy:
                await asyncio.sleep(1.0)
        raise AccessRefused(503, "too many ask at once; the page begins anew")


async def _closed(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
