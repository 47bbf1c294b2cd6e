"""What custom edges are worth on nodes, as another process has found it: the verbs look it up, and wait for it a little.

Anybody may write edges that nobody has weighed before. So a request waits for REQUEST_SECONDS at most, and what a namespace has
weighed costs it processor time, of which it has only so much. Past either, the pod is placed with what is known by then: on a
node that was weighed, if one fits, else as if it had asked for pattern None.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Final, NamedTuple, Protocol

from kompakt_core.errors import TryLater
from kompakt_core.placement.model import NodeState, Reason, Rejection
from kompakt_core.topology.graph import SharedGraph
from kompakt_extender.decide import Request, Weight, weigh, without_plan
from kompakt_extender.deciding.process import Callee, CallFailed
from kompakt_extender.deciding.time_budget import TimeBudget
from kompakt_extender.deciding.weighing import WeighedNodes, WeighingTask

# kube-scheduler places one pod after another, so this is what a pod with new edges may cost all others. Enough for five new sets
# of eight edges on eight GPUs each (50 ms).
REQUEST_SECONDS: Final = 0.25
# Time that a namespace's edges may take, of the weighing process and of this one: at once, and in each second. Forty new sets of
# eight edges, then one every two seconds. At 1,000 nodes each also costs this process 7 ms to compare them.
NAMESPACE_SECONDS: Final = 2.0
NAMESPACE_RATE: Final = 0.02
NOT_IN_TIME: Final = (
    f"placed by pattern None: comparing its custom edges with the nodes' links takes longer than {REQUEST_SECONDS:g} s, or "
    "namespace and process had no time left for it"
)
START_SECONDS: Final = 5.0  # more for who finds no process, which is the first pod with edges: half a second on a quiet machine
HUNG_SECONDS: Final = 30.0  # a node takes a second at most (core's search.NODES), so this process hangs
MOST_REQUESTS: Final = 64
MOST_WEIGHTS: Final = 4096  # of one request

MOST_AT_ONCE: Final = 256  # nodes in one call, half a megabyte
_LOG = logging.getLogger(__name__)
NodeAndWait = tuple[NodeState, bool]


class WeightKey(NamedTuple):
    """All of a node that its weight depends on. `node`: where the request has GPUs of one node planned."""

    node: str
    machine: SharedGraph
    free: int
    kept: int
    waits: bool


class Weights(Protocol):
    """Where boards get weights from."""

    def weight(self, request: Request, state: NodeState, waits: bool) -> Weight | Rejection | None:
        """What a node is worth to a request; None: not known (yet)."""
        ...

    def exhausted(self, namespace: str) -> bool:
        """Whether it has used up its time: nothing more is weighed for it now."""
        ...

    def spend(self, namespace: str, seconds: float) -> None:
        """So much was used for it here."""
        ...

    async def weigh(self, namespace: str, request: Request, nodes: Sequence[NodeAndWait], until: float) -> bool:
        """Have nodes weighed (the planned one alone, or others), in their order; whether any were."""
        ...


class WeighedHere:
    """Weighs in this process, at once; right where nobody waits for it."""

    def weight(self, request: Request, state: NodeState, waits: bool) -> Weight | Rejection | None:
        return weigh(request, state, waits)

    def exhausted(self, namespace: str) -> bool:
        return False

    def spend(self, namespace: str, seconds: float) -> None:
        """Nobody counts."""

    async def weigh(self, namespace: str, request: Request, nodes: Sequence[NodeAndWait], until: float) -> bool:
        return False


class CustomPatterns:
    """Weights of requests with custom edges, by what they depend on; all others are weighed here, at once."""

    def __init__(self, process: Callee, clock: Callable[[], float] = time.monotonic) -> None:
        self._process = process
        self._clock = clock
        self._budget = TimeBudget(NAMESPACE_SECONDS, NAMESPACE_RATE, clock)
        self._known: dict[Request, dict[WeightKey, Weight | Rejection]] = {}  # the one used last stands last
        self._under_way: dict[str, asyncio.Task[None]] = {}  # by namespace

    def weight(self, request: Request, state: NodeState, waits: bool) -> Weight | Rejection | None:
        if _easy(request, state):
            return weigh(request, state, waits)
        asked = _asked(request, state)
        found = self._known.get(asked, {}).get(weight_key(asked, state, waits))
        need = None if asked is request else request.minimum
        if isinstance(found, Weight) and need is not None and found.value < need:
            return Rejection(Reason.VALUE_TOO_LOW, have=found.value, need=need)
        return found

    def exhausted(self, namespace: str) -> bool:
        return self._budget.left(namespace) <= 0

    def spend(self, namespace: str, seconds: float) -> None:
        self._budget.spend(namespace, seconds)

    async def weigh(self, namespace: str, request: Request, nodes: Sequence[NodeAndWait], until: float) -> bool:
        """Returns at `until`, by the clock, at the latest, or START_SECONDS later where there is no process yet.

        What is under way for the namespace then goes on, and nothing else of it is begun before that has ended.
        """
        missing = [(state, waits) for state, waits in nodes if self.weight(request, state, waits) is None]
        if not missing or self.exhausted(namespace):
            return False
        if (before := self._under_way.get(namespace)) is not None:
            return await self._wait_for(before, until)  # it may be about the same
        seconds, until = until - self._clock(), until if self._process.ready else until + START_SECONDS
        asked = _asked(request, missing[0][0])
        wanted = {weight_key(asked, *node): node for node in islice(missing, MOST_AT_ONCE)}
        task = asyncio.create_task(self._ask(namespace, asked, wanted, seconds))
        self._under_way[namespace] = task
        task.add_done_callback(lambda task: self._ended(namespace, task))
        return await self._wait_for(task, until)

    def _ended(self, namespace: str, task: "asyncio.Task[None]") -> None:
        self._under_way.pop(namespace, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            _LOG.warning("custom edges of namespace %s could not be weighed: %s", namespace, error)

    async def _wait_for(self, task: "asyncio.Task[None]", until: float) -> bool:
        done, _ = await asyncio.wait({task}, timeout=max(until - self._clock(), 0.0))
        return bool(done) and task.exception() is None

    async def _ask(self, namespace: str, request: Request, wanted: Mapping[WeightKey, NodeAndWait], seconds: float) -> None:
        task = WeighingTask(request, tuple((_bare(state), waits) for state, waits in wanted.values()), seconds)
        try:
            found: WeighedNodes = await self._process.call(lambda fresh: task, HUNG_SECONDS)
        except (TryLater, CallFailed):
            self.spend(namespace, NAMESPACE_SECONDS)  # its edges hung or killed the process
            raise
        self.spend(namespace, found.seconds)
        self._learn(request, dict(zip(wanted, found.weights, strict=False)))

    def _learn(self, request: Request, weights: Mapping[WeightKey, Weight | Rejection]) -> None:
        known = self._known.pop(request, {})
        if len(known) + len(weights) > MOST_WEIGHTS:
            known = {}
        self._known[request] = {**known, **weights}
        if len(self._known) > MOST_REQUESTS:
            del self._known[next(iter(self._known))]


def _easy(request: Request, state: NodeState) -> bool:
    """Whether the answer needs no look at the edges: there are none, or the node is out anyway."""
    if not request.gpu_request.edges or state.graph is None or not state.ready or state.problem is not None:
        return True
    if _planned_on(request, state):
        return False
    return (bool(request.planned_node) and request.minimum is None) or state.free.bit_count() < request.gpus


def _asked(request: Request, state: NodeState) -> Request:
    """What is asked of this node: its planned GPUs, or any."""
    return request if _planned_on(request, state) or request == without_plan(request) else without_plan(request)


def _planned_on(request: Request, state: NodeState) -> bool:
    return bool(request.planned_node) and request.planned_node == state.name


def weight_key(request: Request, state: NodeState, waits: bool) -> WeightKey:
    """Equal for nodes that are worth the same to this request; `state` has a link graph."""
    assert state.graph is not None
    return WeightKey(state.name if request.planned_node else "", state.graph.shared, state.free, state.kept, waits)


def _bare(state: NodeState) -> NodeState:
    """Without what weighing does not read."""
    return replace(state, labels={}, taints=())
