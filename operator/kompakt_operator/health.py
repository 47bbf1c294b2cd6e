"""/healthz and /metrics. Alive means: the event loop turns, an active operator finishes reconciling, and no watch is stuck."""

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from aiohttp import web

BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)  # seconds, Prometheus' own defaults
STUCK_SECONDS: Final = 120.0  # a reconciliation is a handful of requests of at most 15 s each


@dataclass
class OperatorHealth:
    """What the process knows about itself. Moments are the event loop's."""

    active: bool = False
    reconciles: Counter[str] = field(default_factory=Counter)  # by outcome: done, retried, failed
    buckets: Counter[float] = field(default_factory=Counter)  # reconciliations that took no longer, by seconds
    seconds: float = 0.0  # of all reconciliations together
    waiting: int = 0
    under_way: dict[int, float] = field(default_factory=dict)  # worker -> when its reconciliation began
    stuck_watch: str = ""  # what a watch fails to show

    def stuck(self, now: float) -> bool:
        """Whether any reconciliation takes longer than it can."""
        return any(now - begin > STUCK_SECONDS for begin in self.under_way.values())

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
        yield "workqueue_depth", "gauge", "Jobs in the work queue.", {"": self.waiting}
        yield "reconciles_total", "counter", "Reconciliations of jobs by outcome.", outcomes
        yield "reconcile_seconds", "histogram", "Duration of one reconciliation.", buckets | sums


async def serve(pulse: OperatorHealth, port: int) -> web.AppRunner:
    """Start serving on all addresses; port 0 is for tests: any free one."""

    async def healthz(_: web.Request) -> web.Response:
        if pulse.stuck(asyncio.get_running_loop().time()):
            return web.Response(status=503, text="reconciling a job takes too long\n")
        if pulse.stuck_watch:
            return web.Response(status=503, text=f"{pulse.stuck_watch}\n")
        return web.Response(text="ok\n")

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(text=pulse.text(), content_type="text/plain")

    app = web.Application()
    app.add_routes([web.get("/healthz", healthz), web.get("/metrics", metrics)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, None, port).start()
    return runner


def _metric(name: str, kind: str, text: str, samples: Mapping[str, object]) -> str:
    name = f"kompakt_operator_{name}"
    return f"# HELP {name} {text}\n# TYPE {name} {kind}\n" + "".join(f"{name}{key} {value}\n" for key, value in samples.items())
