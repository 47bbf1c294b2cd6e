"""Health, metrics and the read-only explain API, for probes, Prometheus and people."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

from fastapi import FastAPI, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from kompakt_core.ids import NodeName
from kompakt_core.placement.model import NodeState
from kompakt_extender.explain.access import AccessGuard
from kompakt_extender.explain.body_limit import BodyLimit
from kompakt_extender.explain.bounded_executor import BoundedExecutor
from kompakt_extender.explain.page import add_page
from kompakt_extender.explain.queries import Queries
from kompakt_extender.explain.routes import add_routes
from kompakt_extender.live.feed import LiveFeed
from kompakt_extender.live.routes import add_live_page, add_live_routes
from kompakt_extender.metrics import ExtenderMetrics

_ABOUT = """Why a job waits, or why it is where it is. Nothing here changes anything.

Bandwidths are one direction, in MB/s (10^6 bytes). Every question carries a token of audience `kompakt.dev` in the header
`Kompakt-Token`. Its account may `get` `trainingjobs/explain` in the namespace asked about, or `gputopologies/explain` for
nodes: `kubectl create token kompakt-explain-reader -n kompakt-system --audience kompakt.dev` makes one. `kompakt explain` and
`kompakt what-if` do so by themselves, through the API server's service proxy."""


class Explainer(Protocol):
    """What the health routes ask."""

    @property
    def trouble(self) -> str:
        """Why this process is neither deciding nor a standby that could take over; empty when all is well."""
        ...

    @property
    def stuck(self) -> str:
        """Why this process must be restarted; empty when all is well."""
        ...

    @property
    def unfit(self) -> str:
        """Why kube-scheduler beside this process should give its Lease to another; empty when all is well."""
        ...

    def queries(self) -> Queries:
        """Answers about the running active time; raises Inactive on a standby."""
        ...

    def states(self) -> Mapping[NodeName, NodeState]:
        """All nodes at this moment; none on a standby."""
        ...

    @property
    def unconfirmed_binds(self) -> int:
        """Binds that are not seen on their pods yet, at this moment."""
        ...

    @property
    def gated_pods(self) -> int:
        """Pods of gangs of others behind our gate that the planner looks after, at this moment; 0 on a standby."""
        ...


async def _well() -> str:
    return ""


def health_app(
    explainer: Explainer, metrics: ExtenderMetrics, guard: AccessGuard, scheduler: Callable[[], Awaitable[str]] = _well
) -> FastAPI:
    """Routes /healthz, /readyz, /schedulerz, /metrics, the explain API below /v1alpha1, its page /docs, and the live page /ui/.

    Probes and the pages are open. `scheduler`: what is wrong with kube-scheduler beside us, if anything.
    """
    app = FastAPI(
        title="kompakt explain API",
        description=_ABOUT,
        version="v1alpha1",
        docs_url=None,
        redoc_url=None,
        servers=[{"url": ".", "description": "beside this page, also behind the API server's proxy"}],
        root_path_in_servers=False,
    )
    app.add_middleware(BodyLimit)
    add_page(app)
    add_routes(app, explainer, BoundedExecutor(), guard)
    feed = LiveFeed(explainer)
    add_live_page(app)
    add_live_routes(app, feed, guard)
    app.state.leaving = feed.close
    scrapes = BoundedExecutor()  # of its own: questions of people must not make a scrape fail

    @app.get("/healthz", include_in_schema=False)
    async def healthz() -> Response:
        return _verdict(explainer.stuck)

    @app.get("/readyz", include_in_schema=False)
    async def readyz() -> Response:
        return _verdict(explainer.trouble)

    @app.get("/schedulerz", include_in_schema=False)
    async def schedulerz() -> Response:
        return _verdict(explainer.unfit or await scheduler())

    @app.get("/metrics", include_in_schema=False)
    async def prometheus(request: Request) -> Response:
        await guard.to_metrics(request)
        metrics.fleet.look(explainer.states())
        metrics.unknown_binds.set(explainer.unconfirmed_binds)  # what confirms them is no bind
        metrics.gated_pods.set(explainer.gated_pods)
        # Thousands of nodes make a megabyte of text: on a thread, because kube-scheduler waits for this loop.
        return Response(await scrapes.run(lambda: generate_latest(metrics.registry)), media_type=CONTENT_TYPE_LATEST)

    return app


def _verdict(trouble: str) -> Response:
    return Response(trouble or "ok", status_code=503 if trouble else 200, media_type="text/plain")
