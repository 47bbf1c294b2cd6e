"""Why a pod is where it is, or why it waits."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from kompakt_core import contract
from kompakt_core.contract import bound_gpus, timestamps
from kompakt_core.contract.scheduling_record import Record
from kompakt_core.errors import InvalidInput
from kompakt_core.ids import GpuIndex, GpuUuid, NodeName, indices_of, mask_of
from kompakt_core.patterns.names import Pattern
from kompakt_core.placement.choose import edges_rejection, facts_on, runner_up
from kompakt_core.placement.gang_placement import ideal_value
from kompakt_core.placement.model import Gang, GpuRequest, NodeState, PlacementPolicy, Reason, Snapshot
from kompakt_core.topology.graph import LinkGraph
from kompakt_extender.custom_patterns import NOT_IN_TIME, Weights
from kompakt_extender.decide import Request, Weight
from kompakt_extender.explain.models import Decision, GpuSet, NodeRejections, NodeRoom, OtherNode, PodAnswer
from kompakt_extender.explain.survey import asked_of, survey
from kompakt_extender.gangs import worker_of
from kompakt_extender.placement_annotations import gpu_request_of
from kompakt_extender.placement_history import PlacementRecord
from kompakt_extender.rejections import TEXTS
from kompakt_extender.views import JobKind, JobView, PodView

_WHOLE_GANG = "the planner placed the whole gang at once; it compared gangs of nodes, not nodes for this pod"
_BY_EDGES = (
    "the planner placed the whole gang at once, by the edges between its pods too; values here count those inside this pod"
)
_NO_SECOND = "no other node that Kubernetes allows for this pod could have taken it at that moment"
_NOT_COMPARED = "no other node was compared"
_NOT_NOTED = "bound before this process began to decide: what else there was is not known any more"


@dataclass(frozen=True, slots=True)
class PodExplanation:
    """All that is known of one pod at one moment. `gang` is None for plain pods and where the gang cannot be read."""

    pod: PodView
    job: JobView | None
    record: Record | None
    gang: Gang | None
    decision: PlacementRecord | None
    snapshot: Snapshot
    planned: bool  # GPUs are promised to it
    weights: Weights
    beyond: str = ""  # what a plain pod asks for and Limits do not let it
    reported: tuple[GpuUuid, ...] = ()  # what its node reports of it


def explain(case: PodExplanation) -> PodAnswer:
    """The answer about one pod; takes milliseconds on thousands of nodes, so it runs beside the loop."""
    pod = case.pod
    gpu_request, trouble = _gpu_request(case)
    state = _state(case)
    fits, rejections, rooms = 0, list[NodeRejections](), list[NodeRoom]()
    if state == "Waiting" and gpu_request is not None and pod.gpus and not pod.problem:
        seen = survey(case.snapshot.nodes.values(), worker_of(pod), _compared(pod, gpu_request), case.gang)
        fits, rejections, rooms = len(seen.found), seen.rejections(), seen.rooms()
    return PodAnswer(
        namespace=pod.namespace,
        name=pod.name,
        uid=pod.uid,
        state=state,
        message=trouble or _MESSAGES[state](case, fits),
        job=case.job.name if case.job and case.job.kind is JobKind.TRAINING_JOB else "",
        gang=case.job.name if case.job and case.job.kind is JobKind.GANG else "",
        node=pod.node or pod.planned_node,
        gpus=list(_gpus(case)),
        gpu_indices=_indices(case),
        asked=asked_of(pod.gpus, gpu_request) if gpu_request is not None else None,
        value=bound_gpus.value(pod.annotations) if pod.written_gpus else _reported_value(case, gpu_request),
        ideal=_ideal(case, gpu_request) if gpu_request is not None else None,
        decision=_decision(case, gpu_request),
        fits=fits,
        rejections=rejections,
        rooms=rooms,
    )


def _gpu_request(case: PodExplanation) -> tuple[GpuRequest | None, str]:
    """How the pod wants its GPUs chosen, or what is wrong with its request."""
    pod = case.pod
    if pod.problem:
        return None, pod.problem
    if not pod.gpus:
        return None, "" if pod.job_uid else f"{TEXTS[Reason.NO_GPUS]}: kompakt has no part in where it runs"
    try:
        found = gpu_request_of(pod.annotations, same_numa_node=bool(case.job and case.job.same_numa_node))
    except InvalidInput as error:
        return None, str(error)
    # Pods of others know nothing of patterns; most trainings on several GPUs are rings (NCCL).
    return (found if pod.ours or found.pattern is not Pattern.NONE else replace(found, pattern=Pattern.RING)), ""


def _compared(pod: PodView, gpu_request: GpuRequest) -> GpuRequest:
    """What nodes are asked for: whether one has room does not depend on custom edges that fit the pod, and they take long."""
    return gpu_request if not gpu_request.edges or edges_rejection(gpu_request, pod.gpus) else gpu_request.without_pattern()


def _ideal(case: PodExplanation, gpu_request: GpuRequest) -> int | None:
    """MB/s; None where nobody knows: custom edges are weighed for kube-scheduler, not for this answer."""
    if not gpu_request.edges:
        return ideal_value(case.snapshot, case.pod.gpus, gpu_request)
    best = Request(case.pod.gpus, replace(gpu_request, policy=PlacementPolicy.BEST))
    graphs = {state.graph.digest: state.graph for state in case.snapshot.nodes.values() if state.graph is not None}
    found = [case.weights.weight(best, NodeState(NodeName(""), graph), False) for graph in graphs.values()]
    return None if None in found else max((int(one.value) for one in found if isinstance(one, Weight)), default=0)


def _state(case: PodExplanation) -> str:
    if case.pod.finished:
        return "Finished"
    if case.pod.node is not None:
        return "Bound"
    return "Planned" if case.planned else "Waiting"


def _gpus(case: PodExplanation) -> tuple[GpuUuid, ...]:
    """Nothing is written on pods whose GPUs somebody else hands out."""
    return case.pod.written_gpus or case.reported or case.pod.planned_gpus


def _reported_value(case: PodExplanation, gpu_request: GpuRequest | None) -> int | None:
    """What the GPUs are worth that somebody else gave it."""
    state = case.snapshot.nodes.get(NodeName(case.pod.node or ""))
    if gpu_request is None or not case.reported or state is None or state.graph is None:
        return None
    mask = mask_of([GpuIndex(index) for index in _indices(case)])
    try:
        return int(facts_on(state.graph, mask, gpu_request).value(mask))
    except InvalidInput:
        return None


def _bound(case: PodExplanation, fits: int) -> str:
    where = f"bound to {case.pod.node}"
    if not case.pod.ours:
        return f"{where} by another scheduler"
    decision = case.decision
    if decision is None or decision.node != case.pod.node:
        return f"{where}; {_NOT_NOTED}"
    chosen = tuple(decision.graph.gpus[i].uuid for i in decision.order)
    if chosen != case.pod.written_gpus:
        return f"{where}; the kubelet gave other GPUs than those chosen, and the device plugin corrected the pod's annotations"
    return f"{where} with the GPUs that were chosen for it"


def _waiting(case: PodExplanation, fits: int) -> str:
    pod, record, job = case.pod, case.record, case.job
    if not pod.ours:
        return f"its schedulerName is not {contract.SCHEDULER_NAME}: another scheduler decides"
    if others := [gate for gate in pod.gates if gate != contract.GATE]:
        return f"held back by the scheduling gates {', '.join(others)}"
    if job is not None and record is not None and record.message and record.attempt == job.attempt:
        return record.message
    if job is not None:
        return "its gang is not planned yet"
    if case.beyond:
        return case.beyond
    if fits:
        return f"{fits} nodes could take it now; kube-scheduler tries it again soon"
    return "no node can take it now"


_MESSAGES: dict[str, Callable[[PodExplanation, int], str]] = {
    "Finished": lambda case, fits: f"finished: {case.pod.phase}; it holds no GPUs any more",
    "Bound": _bound,
    "Planned": lambda case, fits: f"GPUs on {case.pod.planned_node} are planned for it; kube-scheduler has not bound it yet",
    "Waiting": _waiting,
}


def _indices(case: PodExplanation) -> list[int]:
    """The GPUs as indices of their node, where the node is known."""
    state = case.snapshot.nodes.get(NodeName(case.pod.node or case.pod.planned_node))
    if state is None or state.graph is None:
        return []
    index = {gpu.uuid: int(gpu.index) for gpu in state.graph.gpus}
    return [index[uuid] for uuid in _gpus(case) if uuid in index]


def _decision(case: PodExplanation, asked: GpuRequest | None) -> Decision | None:
    noted = case.decision
    if noted is None or noted.node != case.pod.node:
        return None
    request, second = noted.request, noted.second
    other = None if second is None else OtherNode(node=second.node, gpus=_plain(second.order), value=second.value)
    return Decision(
        at=timestamps.encode(noted.at),
        node=noted.node,
        free_before=_plain(indices_of(noted.free)),
        chosen=GpuSet(gpus=_plain(noted.order), value=noted.value),
        chosen_by="Planner" if _planned_here(noted) else "Extender",
        second_set=second_set(noted.graph, noted.free, request, mask_of(noted.order)),
        second_node=other,
        note=_note(noted, case.gang, asked),
    )


def _planned_here(noted: PlacementRecord) -> bool:
    return bool(noted.request.planned_node) and noted.request.planned_node == noted.node


def _note(noted: PlacementRecord, gang: Gang | None, asked: GpuRequest | None) -> str:
    if _planned_here(noted) and noted.request.minimum is None:
        return _BY_EDGES if gang is not None and gang.edges else _WHOLE_GANG
    if asked is not None and asked.edges and not noted.request.gpu_request.edges:
        return NOT_IN_TIME
    if noted.second is not None:
        return ""
    return _NO_SECOND if noted.compared else _NOT_COMPARED


def _plain(indices: Iterable[GpuIndex]) -> list[int]:
    return [int(index) for index in indices]


def second_set(graph: LinkGraph, free: int, request: Request, chosen: int) -> GpuSet | None:
    """The set of the node that the policy ranks first when `chosen` is left out; None where there is no other."""
    other = runner_up(graph, free, request.gpus, request.gpu_request, chosen)
    return None if other is None else GpuSet(gpus=_plain(other.order), value=other.value)
