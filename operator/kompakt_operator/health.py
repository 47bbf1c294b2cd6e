"""/healthz and /readyz for everybody, /metrics for who may.

Alive means: the event loop turns, an active operator finishes reconciling, and no watch is stuck. Ready means: that, and this
process is at work with all that it watches listed, or stands by and could take over.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final

from aiohttp import web

from kompakt_client.reviews import READ_METRICS, AccessRefused, Reviews, token_of

BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)  # seconds, Prometheus' own defaults
THREADS: Final = 2
MOST_WAITING: Final = 8  # scrapes that wait for the API server's word
STUCK_SECONDS: Final = 120.0  # a reconciliation is a handful of requests of at most 15 s each


@dataclass
class OperatorHealth:
    """What the process knows about itself. Moments are the event loop's."""

    active: bool = False
    listed: bool = False  # whether all that an active operator watches has been listed
    hears_lease: Callable[[], bool] = lambda: False  # whether the API server answered when last asked about the Lease
    reconciles: Counter[str] = field(default_factory=Counter)  # by outcome: done, retried, failed
    buckets: Counter[float] = field(default_factory=Counter)  # reconciliations that took no longer, by seconds
    seconds: float = 0.0  # of all reconciliations together
    waiting: Callable[[], int] = lambda: 0  # jobs in the work queue
    gated: Callable[[], int] = lambda: 0  # pods of gangs of others behind our gate
    under_way: dict[int, float] = field(default_factory=dict)  # worker -> when its reconciliation began
    stuck_watch: str = ""  # what a watch fails to show

    def stuck(self, now: float) -> bool:
        """Whether any reconciliation takes longer than it can."""
        return any(now - begin > STUCK_SECONDS for begin in self.under_way.values())

    def sick(self, now: float) -> str:
        """Why this process must be restarted; "" when all is well."""
        return "reconciling a job takes too long" if self.stuck(now) else self.stuck_watch

    def unready(self, now: float) -> str:
        """Why this process neither works nor could take over; "" when it does or could."""
        if not self.hears_lease():
            return "the API server has not answered about the Lease"
        if self.active and not self.listed:
            return "not all is listed yet"
        return self.sick(now)

    def reconciled(self, outcome: str, seconds: float) -> None:
        """A reconciliation has ended."""
        self.reconciles[outcome] += 1
        self.seconds += seconds
        self.buckets.update(bucket for bucket in BUCKETS if seconds <= bucket)

    def text(self) -> str:
        """In the exposition format of Prometheus."""
        return "".join(_metric(*row) for row in self._metrics())

    def _metrics(self) -> Iterator[tuple[str, str, str, Mapping[str, object]]]:
        """Name without prefix, type, help text, and the samples by what follows the name."""
        total = self.reconciles.total()
        buckets = {f'_bucket{{le="{bound}"}}': self.buckets[bound] for bound in BUCKETS}
        sums = {'_bucket{le="+Inf"}': total, "_sum": f"{self.seconds:.6f}", "_count": total}
        outcomes = {f'{{outcome="{outcome}"}}': number for outcome, number in sorted(self.reconciles.items())}
        yield "active", "gauge", "Whether this process holds the Lease.", {"": int(self.active)}
        yield "watch_stuck", "gauge", "Whether a watch fails to show what the API server has.", {"": int(bool(self.stuck_watch))}
        yield "workqueue_depth", "gauge", "Jobs in the work queue.", {"": self.waiting()}
        yield "gated_pods", "gauge", "Pods of gangs of others that wait behind our scheduling gate.", {"": self.gated()}
        yield "reconciles_total", "counter", "Reconciliations of jobs by outcome: done, retried, failed.", outcomes
        yield "reconcile_seconds", "histogram", "Duration of one reconciliation.", buckets | sums


class MetricsGuard:
    """Whether who asks may read figures, asked on threads of its own; without `reviews` everybody may."""

    def __init__(self, reviews: Reviews | None) -> None:
        self._reviews, self._waiting = reviews, 0
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="reviews")

    async def admit(self, request: web.Request) -> None:
        """Raises AccessRefused."""
        if self._reviews is None:
            return
        if self._waiting >= MOST_WAITING:
            raise AccessRefused(503, "too many ask at once; try again in a second")
        self._waiting += 1
        try:
            loop, token = asyncio.get_running_loop(), token_of(request.headers.get)
            await loop.run_in_executor(self._threads, self._reviews.admit, token, READ_METRICS)
        finally:
            self._waiting -= 1


async def serve(pulse: OperatorHealth, port: int, guard: MetricsGuard) -> web.AppRunner:
    """Start serving on all addresses; port 0 is for tests: any free one."""

    async def healthz(_: web.Request) -> web.Response:
        return _verdict(pulse.sick(asyncio.get_running_loop().time()))

    async def readyz(_: web.Request) -> web.Response:
        return _verdict(pulse.unready(asyncio.get_running_loop().time()))

    async def metrics(request: web.Request) -> web.Response:
        try:
            await guard.admit(request)
        except AccessRefused as refused:
            return web.Response(status=refused.status, text=f"{refused}\n")
        return web.Response(text=pulse.text(), content_type="text/plain")

    app = web.Application()
    app.add_routes([web.get("/healthz", healthz), web.get("/readyz", readyz), web.get("/metrics", metrics)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, None, port).start()
    return runner


def _verdict(trouble: str) -> web.Response:
    return web.Response(status=503 if trouble else 200, text=f"{trouble or 'ok'}\n")


def _metric(name: str, kind: str, text: str, samples: Mapping[str, object]) -> str:
    name = f"kompakt_operator_{name}"
    return f"# HELP {name} {text}\n# TYPE {name} {kind}\n" + "".join(f"{name}{key} {value}\n" for key, value in samples.items())
