"""Which GPUs of a node a pod may get: one pure answer for filter, prioritize and bind."""

from dataclasses import dataclass, replace
from typing import Final

from kompakt_core.contract import planned_seat
from kompakt_core.errors import InvalidInput
from kompakt_core.ids import GpuIndex, GpuMask, GpuUuid, MegabytesPerSecond, mask_of
from kompakt_core.placement.choose import choose, facts_on, requested_facts
from kompakt_core.placement.fit import reserved_would_do
from kompakt_core.placement.model import GpuRequest, NodeState, PlacementPolicy, Reason, Rejection
from kompakt_core.topology.graph import LinkGraph
from kompakt_extender.placement_annotations import gpu_request_of
from kompakt_extender.views import PodView


@dataclass(frozen=True, slots=True)
class Request:
    """What one pod asks for. `planned`: its own GPUs on `planned_node`; `minimum`: MB/s that another node must reach
    (None: no other node will do).
    """

    gpus: int
    gpu_request: GpuRequest
    planned_node: str = ""
    planned: tuple[GpuUuid, ...] = ()
    minimum: int | None = None


@dataclass(frozen=True, slots=True)
class Grant:
    """The GPUs that a pod may have: UUIDs and indices in pattern order, and the value of the pattern on them."""

    uuids: tuple[GpuUuid, ...]
    order: tuple[GpuIndex, ...]
    value: MegabytesPerSecond

    @property
    def mask(self) -> GpuMask:
        return mask_of(self.order)


@dataclass(frozen=True, slots=True)
class Weight:
    """What a node is worth to a request: the GPUs that it would give, in pattern order, the value of the pattern on them, and the
    node's rank. Nothing in it names the node: equal nodes have equal weights.
    """

    order: tuple[GpuIndex, ...]
    value: MegabytesPerSecond
    rank: tuple[int, ...]

    def on(self, graph: LinkGraph) -> Grant:
        """The GPUs of this node."""
        return Grant(tuple(graph.gpus[i].uuid for i in self.order), self.order, self.value)


# One object for each reason: of thousands of nodes most are rejected for the same few.
_REJECTED: Final = {reason: Rejection(reason) for reason in Reason}


def request_of(pod: PodView) -> Request | Rejection:
    """What a pod asks for, from its resources and annotations. Rejected are no GPUs, an impossible request, an annotation that
    cannot be read, and a gang's pod without a plan.
    """
    if pod.problem:
        return Rejection(Reason.INVALID_REQUEST, detail=pod.problem)
    if pod.gpus == 0:
        return _REJECTED[Reason.NO_GPUS]
    try:
        return _request(pod, gpu_request_of(pod.annotations))
    except InvalidInput as error:
        return Rejection(Reason.INVALID_REQUEST, detail=str(error))


def _request(pod: PodView, gpu_request: GpuRequest) -> Request | Rejection:
    if not pod.job_uid:
        return Request(pod.gpus, gpu_request)
    if not pod.planned_node or len(pod.planned_gpus) != pod.gpus:
        return _REJECTED[Reason.NO_PLAN]
    return Request(pod.gpus, gpu_request, pod.planned_node, pod.planned_gpus, planned_seat.min_value(pod.annotations))


def grant(request: Request, state: NodeState | None) -> Grant | Rejection:
    """The GPUs of this node that the pod may have now, or why none. `state` must show the pod's own claims as free."""
    if state is None:
        return _REJECTED[Reason.UNKNOWN_NODE]
    elsewhere = bool(request.planned_node) and state.name != request.planned_node
    if elsewhere and request.minimum is None:
        return _REJECTED[Reason.NOT_PLANNED]
    if not state.ready:
        return _REJECTED[Reason.NODE_NOT_READY]
    if state.problem is not None:
        return _REJECTED[state.problem]
    if state.graph is None:
        return _REJECTED[Reason.NO_TOPOLOGY]
    if request.planned_node and not elsewhere:
        return _planned(request, state, state.graph)
    return _chosen(request, state, state.graph)


def _planned(request: Request, state: NodeState, graph: LinkGraph) -> Grant | Rejection:
    index = {gpu.uuid: gpu.index for gpu in graph.gpus}
    if not set(request.planned) <= index.keys():
        return _REJECTED[Reason.PLANNED_TAKEN]
    order = tuple(index[uuid] for uuid in request.planned)
    mask = mask_of(order)
    if mask & ~state.free:
        return _REJECTED[Reason.PLANNED_TAKEN]
    return Grant(request.planned, order, facts_on(graph, mask, request.gpu_request).value(mask))


def _chosen(request: Request, state: NodeState, graph: LinkGraph) -> Grant | Rejection:
    choice = choose(graph, state.free, request.gpus, request.gpu_request)
    if isinstance(choice, Rejection):
        return _REJECTED[Reason.RESERVED] if _keeps_enough(choice, state) else choice
    if request.minimum is not None and choice.value < request.minimum:
        return Rejection(Reason.VALUE_TOO_LOW, have=choice.value, need=request.minimum)
    return Grant(tuple(graph.gpus[i].uuid for i in choice.order), choice.order, choice.value)


def _keeps_enough(choice: Rejection, state: NodeState) -> bool:
    """Whether it was only for GPUs that are reserved for others."""
    return choice.reason is Reason.NOT_ENOUGH_GPUS and reserved_would_do(state, choice.need)


def rank(request: Request, state: NodeState, found: Grant, *, waits: bool = False) -> tuple[int, ...]:
    """How good a node is for the pod, larger is better; comparable between nodes.

    By policy: the value of the set by both measures, NVLink bandwidth that the node loses with it (MB/s), and how
    full the node gets. `waits`: a bind would have to wait there for the device plugin, so that of a burst of equal pods not all
    queue up for the same node; it never comes before the value where the policy puts that first.
    """
    if state.graph is None:
        raise InvalidInput(f"{state.name} has no link graph")
    facts = requested_facts(state.graph, request.gpu_request)
    lost = facts.fabric(state.free) - facts.fabric(state.free & ~found.mask)
    left = (state.free & ~found.mask).bit_count()
    second = facts_on(state.graph, found.mask, request.gpu_request).second(found.mask)
    gpu_request = request.gpu_request
    if gpu_request.policy is PlacementPolicy.FIRST:
        return ()
    if gpu_request.policy is PlacementPolicy.PACKED:
        return (-waits, -left, found.value, second, -lost)
    if gpu_request.policy is PlacementPolicy.BEST or gpu_request.sensitive:
        return (found.value, second, -waits, -lost, -left)
    return (-waits, -lost, found.value, second, -left)


def weigh(request: Request, state: NodeState, waits: bool) -> Weight | Rejection:
    """`grant` and `rank` in one; `waits` as in rank."""
    found = grant(request, state)
    if isinstance(found, Rejection):
        return found
    return Weight(found.order, found.value, rank(request, state, found, waits=waits))


def without_pattern(request: Request) -> Request:
    """The same with pattern None."""
    return replace(request, gpu_request=request.gpu_request.without_pattern())


def without_plan(request: Request) -> Request:
    """What a pod without a plan would ask for."""
    return Request(request.gpus, request.gpu_request)
