"""The process: one loop that serves the verbs on loopback and health on another port."""

import asyncio
import contextlib
import logging
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Coroutine, Generator
from concurrent.futures import ThreadPoolExecutor

import uvicorn
import uvloop
from fastapi import FastAPI

from kompakt_client import memory
from kompakt_client.reviews import Reviews
from kompakt_client.transport import ApiClient, connect
from kompakt_core.errors import InvalidInput
from kompakt_core.placement.model import Level
from kompakt_extender import own_lease
from kompakt_extender.command_line import Settings, parse
from kompakt_extender.consolidation import ClusterPolicy
from kompakt_extender.explain.access import AccessGuard
from kompakt_extender.explain_only import ExplainOnly
from kompakt_extender.health import health_app
from kompakt_extender.kube_scheduler import SchedulerProbe, unverified
from kompakt_extender.leader_gate import LeaderGate
from kompakt_extender.metrics import ExtenderMetrics
from kompakt_extender.verbs import verbs_app

_LOG = logging.getLogger(__name__)
# Go's client keeps idle connections for 90 s; closing earlier than it does races with its next POST.
KEEP_ALIVE_SECONDS = 120
# How long the planner's thread may keep the interpreter before the verbs get it: prioritize of 5,000 names took 10.1 ms (median)
# beside a plan with Python's 5 ms, 4.4 ms with this.
SWITCH_SECONDS = 0.001
WRITERS = 32  # requests to the API server at once


class VerbServer(uvicorn.Server):
    """uvicorn without its own signal handlers: two servers share one loop here, and main ends both."""

    leaving: Callable[[], None] | None = None

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Answers without an end are ended first: to wait for them would hold up a rollout."""
        if self.leaving is not None:
            self.leaving()
        await super().shutdown(sockets)


def listen(address: str, port: int) -> socket.socket:
    """A listening socket.

    Raises:
        InvalidInput: the port is taken or the address is not ours.
    """
    try:
        listening = socket.create_server((address, port), backlog=1024)
    except OSError as error:
        raise InvalidInput(f"cannot listen on {address}:{port}: {error.strerror}; choose another port") from error
    # Inherited by accepted connections: an answer in two segments would wait 40 ms for a delayed acknowledgement.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


def server(app: FastAPI | Callable[..., Awaitable[None]]) -> VerbServer:
    """An HTTP server for one of our apps."""
    serving = VerbServer(
        uvicorn.Config(
            app,
            http="httptools",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,  # kube-scheduler and the API server's proxy XX
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=5,
        )
    )
    serving.leaving = getattr(getattr(app, "state", None), "leaving", None)
    return serving


async def explain(settings: Settings) -> None:
    """Answer questions until SIGTERM or SIGINT."""
    metrics, api = ExtenderMetrics(), connect(settings.kubeconfig, "kompakt-extender")
    levels = {Level.RACK: settings.rack_label, Level.BLOCK: settings.block_label}
    explainer = ExplainOnly(api, metrics, levels, settings.resource)
    guard = AccessGuard(Reviews(api), plain_metrics=settings.plain_metrics)
    health = server(health_app(explainer, metrics, guard))
    listening = listen(settings.health_address, settings.health_port)
    _LOG.info("explains on %s:%d, and decides nothing", settings.health_address, settings.health_port)
    await _until_told([(health, listening)], explainer.run())


async def serve(settings: Settings) -> None:
    """Run until SIGTERM or SIGINT."""
    metrics = ExtenderMetrics()
    levels = {Level.RACK: settings.rack_label, Level.BLOCK: settings.block_label}
    policy = ClusterPolicy(
        settings.consolidation,
        settings.wait_seconds,
        settings.level_factors,
        settings.overtaken_at_most,
        settings.preemption,
        settings.reserved_seconds,
        settings.bare_pods,
    )
    api = connect(settings.kubeconfig, "kompakt-extender")
    gate = LeaderGate(
        api,
        settings.namespace,
        settings.identity,
        metrics,
        levels,
        policy,
        settings.resource,
        settings.devices,
        settings.keep_nodes_after,
    )
    guard = AccessGuard(Reviews(api), plain_metrics=settings.plain_metrics)
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(WRITERS, thread_name_prefix="write"))
    if settings.devices is not None:
        await _plan(settings, api, gate, health_app(gate, metrics, guard))
        return
    beside = SchedulerProbe(settings.scheduler_port, unverified())
    verbs, health = server(verbs_app(gate, metrics)), server(health_app(gate, metrics, guard, beside))
    sockets = [listen("127.0.0.1", settings.verbs_port), listen(settings.health_address, settings.health_port)]
    _LOG.info("verbs on 127.0.0.1:%d, health on %s:%d", settings.verbs_port, settings.health_address, settings.health_port)
    await _until_told(list(zip((verbs, health), sockets, strict=True)), gate.run())


async def _plan(settings: Settings, api: ApiClient, gate: LeaderGate, health: FastAPI) -> None:
    """Plan for the cluster's own scheduler, which asks nobody, until told."""
    listening = listen(settings.health_address, settings.health_port)
    _LOG.info("plans ResourceClaims of class %s; health on %s:%d", settings.device_class, *listening.getsockname()[:2])
    held = own_lease.hold(api, settings.namespace, settings.identity)
    await _until_told([(server(health), listening)], _both(gate.run(), held))


async def _both(*works: Coroutine[object, object, None]) -> None:
    """Until one of them ends, or raises."""
    async with asyncio.TaskGroup() as group:
        for work in works:
            group.create_task(work)


async def _until_told(servers: list[tuple[VerbServer, socket.socket]], work: Coroutine[object, object, None]) -> None:
    """Serve beside `work`, until a signal or its end."""
    loop = asyncio.get_running_loop()

    def stop() -> None:
        for one, _ in servers:
            one.should_exit = True

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    following = asyncio.create_task(work)
    following.add_done_callback(lambda _: stop())
    await asyncio.gather(*(one.serve([listening]) for one, listening in servers))
    following.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await following


def prefer_verbs() -> None:
    """Has the interpreter keep the verbs waiting for as short a time as it can."""
    sys.setswitchinterval(SWITCH_SECONDS)
    memory.collect_seldom()


def main() -> None:
    """Console script kompakt-extender."""
    settings = parse(sys.argv[1:])
    logging.basicConfig(level=settings.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    memory.one_heap()
    prefer_verbs()
    try:
        uvloop.run((explain if settings.explain_only else serve)(settings))  # worth 1.6 times the requests at small bodies
    except InvalidInput as error:
        sys.exit(f"kompakt-extender: {error}")
