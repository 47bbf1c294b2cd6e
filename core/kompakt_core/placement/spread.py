"""Equal pods over nodes: the fewest nodes, then the best value, then the tightest fit."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from kompakt_core.ids import GpuMask, MegabytesPerSecond, NodeName
from kompakt_core.placement.choose import requested_facts, values_first
from kompakt_core.placement.fit import node_rejection
from kompakt_core.placement.model import Choice, Gang, GpuRequest, NodeState, PlacementPolicy, Worker
from kompakt_core.placement.share import Share, share


@dataclass(frozen=True, slots=True)
class NodeOffer:
    """What a node can do for equal pods: `values[m - 1]` = smallest value (MB/s) when it takes m of them; falling."""

    node: NodeState
    values: tuple[int, ...]

    def capacity(self, at_least: int) -> int:
        """How many pods the node takes with no value below `at_least`."""
        return sum(1 for value in self.values if value >= at_least)


@dataclass(frozen=True, slots=True)
class Placed:
    """Pods on one node: one choice for each."""

    node: NodeName
    choices: tuple[Choice, ...]


def offer(state: NodeState, worker: Worker, gang: Gang, wanted: int) -> NodeOffer | None:
    """The node's offer for up to `wanted` pods like `worker`, or None when it takes none."""
    room = _room(state, worker, wanted)
    if room < 1 or node_rejection(state, worker, gang):  # in this order: on a full cluster it is nearly always the first
        return None
    values: list[int] = []
    for pods in range(1, room + 1):
        sets = _share(state, worker.gpus, pods, gang.gpu_request_of(worker))
        if sets is None:
            break
        values.append(sets.value)
    return NodeOffer(state, tuple(values)) if values else None


def _room(state: NodeState, worker: Worker, wanted: int) -> int:
    """How many pods the node's counts allow: pods, CPU, memory, GPUs."""
    limits = [wanted, state.free_pods]
    if worker.cpu_millis:
        limits.append(state.free_cpu_millis // worker.cpu_millis)
    if worker.memory_bytes:
        limits.append(state.free_memory_bytes // worker.memory_bytes)
    if worker.gpus:
        limits.append(state.free.bit_count() // worker.gpus)
    return min(limits)


def _share(state: NodeState, size: int, pods: int, gpu_request: GpuRequest) -> Share | None:
    if size == 0:
        return Share((Choice(GpuMask(0), (), MegabytesPerSecond(0)),) * pods)
    return share(state.graph, state.free, size, pods, gpu_request) if state.graph is not None else None


def spread(
    offers: Sequence[NodeOffer], count: int, size: int, gpu_request: GpuRequest, opened: frozenset[NodeName]
) -> list[Placed] | None:
    """`count` pods of `size` GPUs over the nodes that offer; None when they do not fit.

    Nodes in `opened` serve the gang already and are filled first. Of all ways with the fewest further nodes one with
    the highest smallest value is taken, if the policy wants value first; ties: tightest fit, least NVLink lost, name.
    Exact for pods of one kind, as far as Share is.
    """
    own = [one for one in offers if one.node.name in opened]
    others = [one for one in offers if one.node.name not in opened]
    further = _fewest(own, others, count, 0)
    if further is None:
        return None
    floor = _highest_floor(own, others, count, further) if values_first(gpu_request) and size else 0
    picks = _fill_opened(own, count, floor)
    missing = count - sum(pods for _, pods in picks)
    picks += _tightest(others, missing, floor, further, size, gpu_request)
    return [Placed(one.node.name, _choices(one.node, size, pods, gpu_request)) for one, pods in picks]


def _choices(state: NodeState, size: int, pods: int, gpu_request: GpuRequest) -> tuple[Choice, ...]:
    sets = _share(state, size, pods, gpu_request)
    assert sets is not None, "an offer promised these sets"
    return sets.choices


def _fewest(own: Iterable[NodeOffer], others: Iterable[NodeOffer], count: int, floor: int) -> int | None:
    """The fewest further nodes that hold what the opened ones cannot."""
    missing = count - sum(one.capacity(floor) for one in own)
    nodes = 0
    for capacity in sorted((one.capacity(floor) for one in others), reverse=True):
        if missing <= 0:
            break
        missing -= capacity
        nodes += 1
    return nodes if missing <= 0 else None


def _highest_floor(own: Sequence[NodeOffer], others: Sequence[NodeOffer], count: int, further: int) -> int:
    """The highest value that all pods can have on that many nodes. Capacity falls as the floor rises: bisection."""
    floors = sorted({value for one in (*own, *others) for value in one.values})
    low, high = 0, len(floors) - 1
    while low < high:
        middle = (low + high + 1) // 2
        needed = _fewest(own, others, count, floors[middle])
        low, high = (middle, high) if needed is not None and needed <= further else (low, middle - 1)
    return floors[low]


def _fill_opened(own: Sequence[NodeOffer], count: int, floor: int) -> list[tuple[NodeOffer, int]]:
    picks = []
    for one in sorted(own, key=lambda one: (one.capacity(floor), one.node.name)):
        pods = min(one.capacity(floor), count)
        if pods:
            picks.append((one, pods))
            count -= pods
    return picks


def _tightest(
    others: Sequence[NodeOffer], missing: int, floor: int, nodes: int, size: int, gpu_request: GpuRequest
) -> list[tuple[NodeOffer, int]]:
    """Exactly as many nodes as needed, each the tightest with which the rest can still be done by the largest."""
    if not missing:  # the opened nodes hold them all
        return []
    capacities = {one.node.name: one.capacity(floor) for one in others}
    left = [one for one in others if capacities[one.node.name]]
    left.sort(key=lambda one: _looseness(one, min(capacities[one.node.name], missing), size, gpu_request))
    largest = sorted(capacities.values(), reverse=True)
    picks: list[tuple[NodeOffer, int]] = []
    while missing > 0:
        nodes -= 1
        # One of the largest can always be taken; a smaller one only if the largest hold all that it leaves over.
        enough = min(missing - sum(largest[:nodes]), largest[nodes])
        one = next(one for one in left if capacities[one.node.name] >= enough)
        capacity = capacities[one.node.name]
        left.remove(one)
        largest.remove(capacity)
        picks.append((one, min(capacity, missing)))
        missing -= capacity
    return picks


def _looseness(one: NodeOffer, pods: int, size: int, gpu_request: GpuRequest) -> tuple[int, int, int, str]:
    """Smaller fits tighter. A job that does not need bandwidth under Preserve avoids losing NVLink before all else."""
    lost = fabric_lost(one.node, sum(choice.mask for choice in _choices(one.node, size, pods, gpu_request)), gpu_request)
    frugal = gpu_request.policy is PlacementPolicy.PRESERVE and not gpu_request.sensitive
    first, second = (lost, pods) if frugal else (pods, lost)
    return (first, second, one.node.free.bit_count(), one.node.name)


def fabric_lost(state: NodeState, used: int, gpu_request: GpuRequest) -> int:
    """MB/s of NVLink pairs that are free on the node now and not after the set `used` is taken."""
    if used == 0 or state.graph is None:
        return 0
    facts = requested_facts(state.graph, gpu_request)
    return facts.fabric(state.free) - facts.fabric(state.free & ~used)


def with_pods(state: NodeState, placed: Placed, worker: Worker) -> NodeState:
    """The node after these pods took their GPUs, CPU, memory and pod slots."""
    used = sum(choice.mask for choice in placed.choices)
    pods = len(placed.choices)
    return replace(
        state,
        taken=GpuMask(state.taken | used),
        free_cpu_millis=state.free_cpu_millis - pods * worker.cpu_millis,
        free_memory_bytes=state.free_memory_bytes - pods * worker.memory_bytes,
        free_pods=state.free_pods - pods,
    )
