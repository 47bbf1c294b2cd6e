"""One open page: what it was told, what it has still to be told, and why it is told no more."""

import asyncio
from collections import deque
from typing import Final

from kompakt_extender.live.overview import Visible

MOST_WAITING: Final = 32  # events that a page may be behind


class PageListener:
    """A queue of events for one page. `greeted`: it was told everything there was; `visible`: the namespaces it may see."""

    def __init__(self, visible: Visible) -> None:
        self.visible, self.greeted = visible, False
        self._waiting: deque[bytes] = deque()
        self._news = asyncio.Event()
        self._end: tuple[int, str] | None = None

    @property
    def ended(self) -> tuple[int, str] | None:
        """Status and sentence, once nothing more comes."""
        return self._end

    def push(self, event: bytes) -> None:
        """One more event; a page that reads too slowly ends instead."""
        if len(self._waiting) >= MOST_WAITING:
            self.end(503, "this page reads more slowly than the cluster changes; it begins anew")
        elif self._end is None:
            self._waiting.append(event)
            self._news.set()

    def end(self, status: int, why: str) -> None:
        """Nothing more comes, and what was still to come is dropped."""
        if self._end is None:
            self._end = status, why
            self._waiting.clear()
            self._news.set()

    def see(self, visible: Visible) -> None:
        """From now on it may see these namespaces; it is told everything anew where that differs."""
        if visible != self.visible:
            self.visible, self.greeted = visible, False
            self._waiting.clear()  # written for other eyes

    async def next(self, seconds: float) -> bytes | None:
        """The next event; None when none comes within so many seconds, or it has ended."""
        if not self._waiting and self._end is None:
            self._news.clear()
            try:
                async with asyncio.timeout(seconds):
                    await self._news.wait()
            except TimeoutError:
                return None
        return self._waiting.popleft() if self._waiting else None
