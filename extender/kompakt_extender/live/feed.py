"""What changes, told to all open pages: read and put into words once, however many pages there are, and never while none is.

kube-scheduler waits for the same loop and the same interpreter. So a round begins as soon as something has changed, but not
within a fifth of a second of the one before, or longer where that one took long; what takes longer than reading runs on a thread.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from datetime import datetime
from typing import Final, Protocol

from kompakt_core.contract import timestamps
from kompakt_extender.clock import utc_now
from kompakt_extender.explain.bounded_executor import BoundedExecutor, Busy
from kompakt_extender.explain.queries import Queries
from kompakt_extender.live.listener import PageListener
from kompakt_extender.live.overview import Overview, Visible
from kompakt_extender.live.watch import LiveWatch, SeenChanges
from kompakt_extender.verbs import Inactive

MOST_PAGES: Final = 32
LOOK_SECONDS: Final = 0.02  # between two looks whether anything has changed
ROUND_SECONDS: Final = 0.2
SHARE: Final = 4  # a round is followed by a pause of as many times the processor time that it took
_LOG = logging.getLogger(__name__)


class LiveSource(Protocol):
    """Who knows whether this process decides."""

    def queries(self) -> Queries:
        """The caches of the running active time; raises Inactive on a standby."""
        ...


class LiveFeed:
    """All open pages of one process. To be used on the loop."""

    def __init__(self, source: LiveSource, now: Callable[[], datetime] = utc_now) -> None:
        self._source, self._now = source, now
        self._listeners: list[PageListener] = []
        self._threads = BoundedExecutor()
        self._spent = 0.0  # seconds of the processor for the words of the last round
        self._overview = Overview()
        self._watch: LiveWatch | None = None
        self._running: asyncio.Task[None] | None = None

    @property
    def pages(self) -> int:
        """How many are open."""
        return len(self._listeners)

    def namespaces(self) -> frozenset[str]:
        """All namespaces that pages could be told of. Raises Inactive on a standby."""
        queries = self._source.queries()
        of_pods = {pod.namespace for pod in queries.ledger.pods.values() if pod.gpus}
        return self._overview.namespaces.union(of_pods, (job.namespace for job in queries.jobs.views.values()))

    def join(self, visible: Visible) -> PageListener:
        """A page is opened. Raises Inactive on a standby, Busy where too many are."""
        self._source.queries()
        if len(self._listeners) >= MOST_PAGES:
            raise Busy(f"{MOST_PAGES} pages are open; close one, or try again later")
        listener = PageListener(visible)
        self._listeners.append(listener)
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(self._run())
        return listener

    def leave(self, listener: PageListener) -> None:
        """A page is closed."""
        self._listeners = [one for one in self._listeners if one is not listener]

    def close(self) -> None:
        """The process ends."""
        self._end_all(503, "this replica ends; another one answers")

    async def _run(self) -> None:
        try:
            while self._listeners:
                await self._round()
                await self._pause(SHARE * self._spent)
        except Inactive as error:
            self._end_all(503, str(error))
        except Exception:
            _LOG.exception("the live pages end")
            self._end_all(503, "an error of kompakt's extender; its log says more")
        finally:
            self._forget()

    async def _pause(self, seconds: float) -> None:
        """Until the next round may begin, and has something to do."""
        await asyncio.sleep(min(max(ROUND_SECONDS, seconds), 2.0))
        while self._watch is not None and self._listeners and not self._watch.changed and self._all_greeted:
            await asyncio.sleep(LOOK_SECONDS)
            self._following()

    @property
    def _all_greeted(self) -> bool:
        return all(one.greeted for one in self._listeners)

    def _forget(self) -> None:
        if self._watch is not None:
            self._watch.close()
        self._watch, self._overview, self._running = None, Overview(), None

    def _end_all(self, status: int, why: str) -> None:
        for one in self._listeners:
            one.end(status, why)
        self._listeners = []

    async def _round(self) -> None:
        """Read what changed, and tell every page."""
        watch = self._following()
        seen = await watch.changes()
        fresh = [one for one in self._listeners if not one.greeted]
        if not seen and not fresh:
            return
        told = [one for one in self._listeners if one.greeted]
        for one in fresh:
            one.greeted = True
        events = await self._threads.run(
            lambda: self._events(seen, {one.visible for one in told}, {one.visible for one in fresh})
        )
        for one, kind in (*((one, "change") for one in told), *((one, "all") for one in fresh)):
            if (event := events.get((kind, one.visible))) is not None:
                one.push(event)
                await asyncio.sleep(0)  # each page writes in a turn of its own, and questions of kube-scheduler come between

    def _following(self) -> LiveWatch:
        """The watch of the session that decides now. Raises Inactive."""
        queries = self._source.queries()
        if self._watch is None:
            self._watch = LiveWatch(queries)
        elif self._watch.queries is not queries:
            raise Inactive("this replica decides anew; the page begins anew too")
        return self._watch

    def _events(self, seen: SeenChanges, told: set[Visible], fresh: set[Visible]) -> dict[tuple[str, Visible], bytes]:
        """The texts of this round, by kind and by who may see what."""
        began = time.thread_time()
        changes = self._overview.apply(seen)
        counts, at = self._overview.counts(), timestamps.encode(self._now())
        events = dict[tuple[str, Visible], bytes]()
        if changes:
            events |= {("change", one): event_of("change", changes.text(one, counts, at)) for one in told}
        if fresh:
            events |= {("all", one): event_of("all", self._overview.everything(one).text(one, counts, at)) for one in fresh}
        self._spent = time.thread_time() - began
        return events


def event_of(kind: str, data: bytes) -> bytes:
    """One server-sent event; JSON has no line breaks of its own."""
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), data)
