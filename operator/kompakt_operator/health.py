"""/healthz and /metrics. Alive means: the event loop turns, an active operator finishes its looks, and no watch is stuck."""

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from aiohttp import web

BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)  # seconds, Prometheus' own defaults
STUCK_SECONDS: Final = 120.0  # a look is a handful of requests of at most 15 s each


@dataclass
class OperatorHealth:
    """What the process knows about itself. Moments are the event loop's."""

    active: bool = False
    looks: Counter[str] = field(default_factory=Counter)  # by outcome: done, retried, failed
    buckets: Counter[float] = field(default_factory=Counter)  # looks that took no longer, by seconds
    seconds: float = 0.0  # of all looks together
    waiting: int = 0
    under_way: dict[int, float] = field(default_factory=dict)  # worker -> when its look began
    stuck_watch: str = ""  # what a watch fails to show

    def stuck(self, now: float) -> bool:
        """Whether any look takes longer than it can."""
        return any(now - begin > STUCK_SECONDS for begin in self.under_way.values())

    def looked(self, outcome: str, seconds: float) -> None:
        """A look has ended."""
        self.looks[outcome] += 1
        self.seconds += seconds
        self.buckets.update(bucket for bucket in BUCKETS if seconds <= bucket)

    def text(self) -> str:
        """In the exposition format of Prometheus."""
        times = "".join(f'kompakt_operator_look_seconds_bucket{{le="{b}"}} {self.buckets[b]}\n' for b in BUCKETS)
        outcomes = "".join(f'kompakt_operator_looks_total{{outcome="{k}"}} {n}\n' for k, n in sorted(self.looks.items()))
        return (
            "# HELP kompakt_operator_active Whether this process holds the Lease.\n# TYPE kompakt_operator_active gauge\n"
            f"kompakt_operator_active {int(self.active)}\n"
            "# HELP kompakt_operator_watch_stuck Whether a watch fails to show what the API server has.\n"
            f"# TYPE kompakt_operator_watch_stuck gauge\nkompakt_operator_watch_stuck {int(bool(self.stuck_watch))}\n"
            "# HELP kompakt_operator_waiting Jobs in line to be looked at.\n# TYPE kompakt_operator_waiting gauge\n"
            f"kompakt_operator_waiting {self.waiting}\n"
            "# HELP kompakt_operator_looks_total Looks at jobs by outcome.\n# TYPE kompakt_operator_looks_total counter\n"
            f"{outcomes}"
            "# HELP kompakt_operator_look_seconds Time that a look takes.\n# TYPE kompakt_operator_look_seconds histogram\n"
            f'{times}kompakt_operator_look_seconds_bucket{{le="+Inf"}} {self.looks.total()}\n'
            f"kompakt_operator_look_seconds_sum {self.seconds:.6f}\nkompakt_operator_look_seconds_count {self.looks.total()}\n"
        )


async def serve(pulse: OperatorHealth, port: int) -> web.AppRunner:
    """Start serving on all addresses; port 0 is for tests: any free one."""

    async def healthz(_: web.Request) -> web.Response:
        if pulse.stuck(asyncio.get_running_loop().time()):
            return web.Response(status=503, text="a look at a job takes too long\n")
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
