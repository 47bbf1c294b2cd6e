"""The deciding half of the process, wired to a World instead of an API server, with a clock that tests move."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeVar

from kompakt_client.requests import Answer
from kompakt_core.contract import scheduling_record
from kompakt_core.contract.gpu_claim import ClaimedDevices
from kompakt_core.contract.plan_record import SeatRecord
from kompakt_core.placement.gang_placement import LEVEL_LABELS
from kompakt_extender.answers import Answers
from kompakt_extender.binder import Binder
from kompakt_extender.consolidation import ClusterPolicy
from kompakt_extender.counts_history import CountsHistory
from kompakt_extender.custom_patterns import Weights
from kompakt_extender.event_handlers import EventHandlers
from kompakt_extender.explain.queries import Queries
from kompakt_extender.gang_objects import GangObjects
from kompakt_extender.jobs import Jobs
from kompakt_extender.ledger import GpuLedger
from kompakt_extender.metrics import ExtenderMetrics
from kompakt_extender.placement_history import PlacementHistory
from kompakt_extender.planner.loop import Planner
from kompakt_extender.planner.plan_lookup import looked_up
from kompakt_extender.rejections import binding_result
from kompakt_extender.release_writer import ReleaseWriter
from kompakt_extender.resource_claims import ResourceClaims
from kompakt_extender.wire import BindingArgs
from kompakt_extender.writer import NotSent
from tests.support.extender.world import World

T = TypeVar("T")
NO_WAIT: Final = ClusterPolicy("no-wait")


class Leader:
    """One leader session over a World."""

    def __init__(
        self,
        world: World,
        policy: ClusterPolicy = NO_WAIT,
        weights: Weights | None = None,
        devices: ClaimedDevices | None = None,
    ) -> None:
        self.world = world
        self._runs_since: float | None = None
        self.now = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)
        self.ledger, self.jobs = GpuLedger(), Jobs()
        self.answers = Answers(self.ledger, self.jobs, weights)
        self.readers = world.readers
        self.metrics = metrics = ExtenderMetrics()
        self.pauses: list[float] = []
        seconds = lambda: self._clock().timestamp()  # noqa: E731
        releaser = ReleaseWriter(
            world,
            lambda pod: self.handlers.see_pod(pod),
            pause=_no_pause,
            steady=seconds,
            resource_claims=None if devices is None else ResourceClaims(world, devices, pause=self._paused, steady=seconds),
        )
        self.meanwhile: list[Callable[[], None]] = []  # each happens once, while core plans
        self._wrong: list[BaseException] = []  # what they raised: the planner survives it as it survives any bug, no test may
        self.stepped = 0.0  # how far the machine's clock was set forward, in seconds
        self.planner = Planner(
            self.ledger,
            self.jobs,
            releaser,
            metrics,
            lambda: self._clock() + timedelta(seconds=self.stepped),
            LEVEL_LABELS,
            policy,
            in_thread=self._in_thread,
            steady=seconds,
            impossible=self._impossible,
            at_once=1,
        )
        self.decisions = PlacementHistory(self.ledger, lambda: self.now, self.answers.boards.peek, metrics, weights)
        self.history = CountsHistory(self.ledger, self.jobs, lambda: self._clock())
        self.queries = Queries(
            self.ledger,
            self.jobs,
            self.decisions,
            lambda: self.now,
            weights,
            history=self.history,
            status_of=lambda _, name: world.jobs[name].get("status", {}),
        )
        self.binder = Binder(
            world,
            self.ledger,
            metrics,
            self.jobs.released,
            self.answers.patterns,
            pause=_no_pause,
            plugin_seconds=0.0,
            now=lambda: self.now,
            note=self.decisions.note,
        )
        self.gang_objects = GangObjects(self.jobs, world, lambda: True, pause=_no_pause)
        self.handlers = EventHandlers(self.ledger, self.jobs, self.planner, metrics, self.gang_objects.touch, devices)

    def _clock(self) -> datetime:
        if self._runs_since is None:
            return self.now
        return self.now + timedelta(seconds=asyncio.get_running_loop().time() - self._runs_since)

    async def _paused(self, seconds: float) -> None:
        """Pauses of writes take no time here, and are kept."""
        self.pauses.append(seconds)
        await asyncio.sleep(0)

    def run_clock(self) -> None:
        """From here on time passes by itself."""
        self._runs_since = asyncio.get_running_loop().time()

    async def _in_thread(self, work: Callable[[], T]) -> T:
        """Work that takes as long as all else that is ready to run."""
        found = work()
        await asyncio.sleep(0)
        if self.meanwhile:
            try:
                self.meanwhile.pop(0)()
            except BaseException as error:
                self._wrong.append(error)
                raise
        return found

    def _impossible(self, what: str) -> None:
        self._wrong.append(AssertionError(what))
        raise self._wrong[-1]

    def raise_what_went_wrong(self) -> None:
        if self._wrong:
            raise self._wrong.pop()

    def take_over(self) -> None:
        self.world.relist(self.handlers, self.readers)
        self.planner.adopt()

    def see(self, count: int = 1 << 30) -> None:
        self.world.deliver(self.handlers, self.readers, count)
        self.raise_what_went_wrong()

    def add_pod(self, made: dict[str, Any]) -> dict[str, Any]:
        """A pod is created or changes, and the watch shows it; so for the reports of a node's plugin."""
        self.world.add_pod(made)
        self.see()
        return made

    def report(self, node: str) -> None:
        self.world.report(node)
        self.see()

    async def place(self, name: str, workers: int = 2, gpus: int = 2, **more: Any) -> None:
        """A gang comes and is planned."""
        self.world.add_gang(name, workers, gpus, **more)
        await self.settle()

    def ask_all_again(self) -> None:
        """Core is asked about every gang that waits, whatever the planner knows."""
        queue = self.planner._queue
        rest = [uid for uid in self.jobs.states if uid in queue._resting]
        queue.wake(lambda uid: True)
        for uid in rest:
            self.jobs.states[uid].result = None

    def wait(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    async def plan(self) -> None:
        """One round and all writes that it starts."""
        self.gang_objects.begin()
        await self.planner.run_cycle()
        while busy := (*self.planner.busy, *self.gang_objects.busy):
            await asyncio.gather(*busy, return_exceptions=True)
        self.raise_what_went_wrong()

    async def rounds(self, number: int = 3) -> None:
        """Rounds that do not wait for the writes they begin."""
        for _ in range(number):
            self.see()
            await self.planner.run_cycle()
            for _ in range(3):
                await asyncio.sleep(0)
            self.raise_what_went_wrong()

    async def settle(self, rounds: int = 6) -> None:
        """Rounds until nothing moves, as the loop would do them."""
        for _ in range(rounds):
            self.see()
            await self.plan()
        self.see()

    async def bind(self, name: str, node: str) -> str:
        """kube-scheduler's bind call; the error, empty when bound."""
        return await self.bind_uid(name, self.world.pods[name]["metadata"]["uid"], node)

    async def bind_uid(self, name: str, uid: str, node: str) -> str:
        """The same for the pod of this uid."""
        return binding_result(
            await self.binder.bind(BindingArgs(name, self.world.pods[name]["metadata"]["namespace"], uid, node))
        ).error

    def scheduling(self, job: str) -> dict[str, Any]:
        """Of a job, or of a gang by namespace/name."""
        store = self.world.gangs if "/" in job else self.world.jobs
        found: dict[str, Any] = store[job]["status"].get("scheduling", {})
        return found

    def seats(self, job: str) -> tuple[SeatRecord, ...]:
        """The places that stand in the job's status, and which GPUs they are."""
        record = scheduling_record.decode(self.scheduling(job))
        assert record is not None
        assert record.plan is not None
        return looked_up(record.plan, (), self.ledger.topologies).pods

    def annotations(self, pod: str) -> dict[str, str]:
        found: dict[str, str] = self.world.pods[pod]["metadata"]["annotations"]
        return found


def on_nodes(
    count: int = 2, policy: ClusterPolicy = NO_WAIT, weights: Weights | None = None, devices: ClaimedDevices | None = None
) -> Leader:
    """A leader whose cluster has so many DGX-1 (V100)."""
    world = World()
    for index in range(count):
        world.add_node(f"n{index}")
    leader = Leader(world, policy, weights, devices)
    leader.take_over()
    return leader


def gates(world: World, name: str) -> list[Any]:
    """The scheduling gates left on a pod."""
    found: list[Any] = world.pods[name]["spec"]["schedulingGates"]
    return found


def slow_to_write(leader: Leader, name: str) -> asyncio.Event:
    """Writes of this job's status are answered only once the event is set."""
    heard, send = asyncio.Event(), leader.world.send

    async def send_slowly(method: str, path: str, **more: Any) -> Answer:
        if path.endswith(f"/{name}/status"):
            await heard.wait()
        return await send(method, path, **more)

    leader.world.send = send_slowly  # type: ignore[method-assign]
    return heard


def may_not_read(leader: Leader, times: int) -> None:
    """The Lease is nobody's while it would read the next so many times."""
    left, send = [None] * times, leader.world.send

    async def send_or_not(method: str, path: str, **more: Any) -> Answer:
        if method == "GET" and left:
            left.pop()
            raise NotSent("the scheduler beside this process no longer holds its Lease")
        return await send(method, path, **more)

    leader.world.send = send_or_not  # type: ignore[method-assign]


async def _no_pause(seconds: float) -> None:
    await asyncio.sleep(0)
