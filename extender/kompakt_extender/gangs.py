"""From TrainingJobs and pods to gangs, and from a plan to the patches that release its pods."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import msgspec

from kompakt_core import contract
from kompakt_core.contract import planned_seat, timestamps, worker_labels
from kompakt_core.contract.gang_member import GangMember
from kompakt_core.contract.plan_record import PlanRecord, SeatRecord
from kompakt_core.contract.planned_seat import PlannedSeat
from kompakt_core.contract.scheduling_record import Record, State
from kompakt_core.contract.worker_labels import AttemptLabels, WorkerLabels
from kompakt_core.errors import InvalidInput
from kompakt_core.ids import JobUid, NodeName, PodUid, mask_of
from kompakt_core.job.model import Preemption
from kompakt_core.job.object_names import pod_name
from kompakt_core.patterns.edges import Edges, make_edges, ranks_of
from kompakt_core.patterns.names import Pattern
from kompakt_core.placement.explain import sentence
from kompakt_core.placement.model import Gang, GpuRequest, Reason, Rejection, Worker
from kompakt_core.placement.rank_mapping import with_edges
from kompakt_core.policy.preempt import PodHolding, RunningGang
from kompakt_core.topology.graph import LinkGraph
from kompakt_extender import node_rules
from kompakt_extender.placement_annotations import gpu_request_of
from kompakt_extender.views import ExpectedRole, JobKind, JobView, PodView

_GATE_PATH = "/spec/schedulingGates/0"
_NUMBERS = re.compile("[0-9]+")


def members(job: JobView, pods: Iterable[PodView]) -> list[PodView]:
    """The living pods of the job's attempt, by worker index; where there are none, those that the operator will create."""
    mine = [pod for pod in pods if pod.attempt == job.attempt and pod.ours and not pod.deleting and not pod.finished]
    if job.kind is JobKind.GANG:
        return numbered(mine)
    return sorted(mine, key=lambda pod: (worker_index(pod), pod.name)) or expected_members(job)


def numbered(pods: Iterable[PodView]) -> list[PodView]:
    """Pods that others made, each with its index in the gang: in the order of their names, numbers in them taken as numbers.

    Controllers that number their pods (Jobs with indices, JobSet, PyTorchJob) have the number in the name, so the ranks that a
    training gives them lie in that order.
    """
    ordered = sorted(pods, key=lambda pod: _NUMBERS.sub(lambda digits: f"{len(digits[0]):04}{digits[0]}", pod.name))
    return [msgspec.structs.replace(pod, labels=worker_labels.numbered(pod.labels, i)) for i, pod in enumerate(ordered)]


def expected_members(job: JobView) -> list[PodView]:
    """The pods of the job's attempt as the operator will create them, by worker index; none where that is not known."""
    each = ((role, index) for role in job.expected if role.pod.ours for index in range(role.replicas))
    return [_expected_member(job, role, index, number) for number, (role, index) in enumerate(each)]


def _expected_member(job: JobView, role: ExpectedRole, index: int, number: int) -> PodView:
    labels = WorkerLabels(AttemptLabels(job.name, job.uid, job.attempt), role.name, number)
    return msgspec.structs.replace(
        role.pod,
        uid=expected_uid(job, number),
        name=pod_name(job.name, role.name, index, job.attempt),
        labels=worker_labels.encode(labels),
    )


def expected_uid(job: JobView, number: int) -> PodUid:
    """What stands for the uid of a worker's pod until it has one."""
    return PodUid(f"{job.uid}/{job.attempt}/{number}")


def worker_index(pod: PodView) -> int:
    """The pod's index over all roles; pods without one come last."""
    index = worker_labels.worker_index(pod.labels)
    return 1 << 30 if index is None else index


def plannable(job: JobView, pods: Sequence[PodView]) -> bool:
    """Whether the whole gang is there and nothing but our gate holds it."""
    return _whole(job, pods) and all(pod.gates == (contract.GATE,) for pod in pods)


def replannable(job: JobView, pods: Sequence[PodView]) -> bool:
    """Whether the whole gang is there, released once, perhaps in part, and none of it is bound."""
    ours = ((), (contract.GATE,))
    return _whole(job, pods) and not any(pod.node or pod.gates not in ours for pod in pods)


def _whole(job: JobView, pods: Sequence[PodView]) -> bool:
    as_written = (None, GangMember(job.workers, job.required_level))
    return len(pods) == job.workers > 0 and all(pod.gang in as_written for pod in pods)


def gang_of(job: JobView, pods: Sequence[PodView], record: Record, now: datetime) -> Gang:
    """The gang as core plans it.

    Raises:
        InvalidInput: a pod asks for what can never be given, or the pods do not agree on how GPUs are chosen.
    """
    for pod in pods:
        if pod.problem:
            raise InvalidInput(f"pod {pod.name}: {pod.problem}")
    edges = make_edges(job.edges) if job.edges else ()
    asked = {gpu_request_of(pod.annotations, same_numa_node=job.same_numa_node) for pod in pods if pod.gpus} or {GpuRequest()}
    if edges:  # what lies inside each pod is on it, and follows from the gang's edges
        asked = {replace(one, pattern=Pattern.NONE, edges=()) for one in asked}
    if len(asked) > 1:
        raise InvalidInput("the gang's pods carry different pattern, policy or link annotations: all must carry the same")
    return Gang(
        job_uid=JobUid(job.uid),
        attempt=job.attempt,
        workers=_workers(pods, edges),
        gpu_request=asked.pop(),
        required_level=job.required_level,
        excluded=frozenset(one.node for one in record.excluded if timestamps.decode(one.until) > now),
        edges=edges,
    )


def _workers(pods: Sequence[PodView], edges: Edges) -> tuple[Worker, ...]:
    workers = tuple(worker_of(pod) for pod in pods)
    if not edges:
        return workers
    if ranks_of(edges) > (have := sum(worker.gpus for worker in workers)):
        raise InvalidInput(f"communication.customEdges names {ranks_of(edges)} ranks, and the gang has {have} GPUs")
    return with_edges(workers, edges)


def worker_of(pod: PodView) -> Worker:
    """What core needs to know of a pod to place it."""
    rules = node_rules.read(pod.rules)
    return Worker(
        index=worker_index(pod),
        pod=pod.name,
        uid=pod.uid,
        gpus=pod.gpus,
        cpu_millis=pod.cpu_millis,
        memory_bytes=pod.memory_bytes,
        node_selector=rules.node_selector,
        affinity=rules.affinity,
        tolerations=rules.tolerations,
    )


def order(job: JobView, pods: Sequence[PodView], record: Record) -> tuple[int, str, str]:
    """Which gang is planned first: priority, then who waits longest, then uid."""
    return (-defends_with(pods), record.waiting_since, job.uid)


def asks_with(pods: Iterable[PodView]) -> int:
    """The priority with which a waiting gang asks for what others have: that of its least important pod."""
    return min((pod.priority for pod in pods), default=0)


def defends_with(pods: Iterable[PodView]) -> int:
    """The priority above which others must be to take what a gang has: that of its most important pod."""
    return max((pod.priority for pod in pods), default=0)


def preempts_with(pods: Sequence[PodView]) -> int | None:
    """The priority with which a waiting gang may end others; None where a pod says Never."""
    return asks_with(pods) if pods and all(pod.preempts for pod in pods) else None


def running_gang(
    job: JobView, record: Record, pods: Iterable[PodView], graphs: Mapping[NodeName, LinkGraph]
) -> RunningGang | None:
    """A gang that could end for another: all its workers have their nodes, and none is on its way out.

    It counts as its most important pod. One that does not run (its image cannot be pulled, say) counts from its release.
    """
    mine = [pod for pod in pods if pod.attempt == job.attempt and not pod.finished]
    stands = record.state is State.RELEASED and record.attempt == job.attempt and job.ours and not (job.suspended or job.finished)
    if not stands or record.plan is None or not mine or any(pod.deleting or pod.node is None for pod in mine):
        return None
    if job.running_since is None and len(mine) < job.workers:
        return None
    since = timestamps.decode(record.plan.released_at).timestamp() if job.running_since is None else job.running_since
    return RunningGang(
        JobUid(job.uid),
        job.attempt,
        defends_with(mine),
        since,
        since + job.min_runtime_seconds,
        tuple(_held(pod, pod.node, graphs.get(pod.node)) for pod in mine if pod.node is not None),
    )


def running_pod(pod: PodView, graph: LinkGraph) -> RunningGang | None:
    """A plain pod that could end for a gang, as a gang of one; its attempt is 0, which no job's is.

    As a job that says nothing it has its GPUs for a minimum run time, from when its node's kubelet took it.
    """
    plain = pod.ours and pod.gpus and not pod.job_uid
    if not plain or pod.node is None or pod.since is None or pod.deleting or pod.finished:
        return None
    until = pod.since + Preemption().min_runtime_seconds
    return RunningGang(JobUid(pod.uid), 0, pod.priority, pod.since, until, (_held(pod, pod.node, graph),))


def _held(pod: PodView, node: NodeName, graph: LinkGraph | None) -> PodHolding:
    own = set(pod.written_gpus)
    gpus = tuple(gpu.index for gpu in graph.gpus if gpu.uuid in own) if graph is not None else ()
    return PodHolding(node, mask_of(gpus), pod.cpu_millis, pod.memory_bytes)


def placed_message(plan: PlanRecord) -> str:
    """One sentence for people."""
    nodes = len({seat.node for seat in plan.pods})
    where = "1 node" if nodes == 1 else f"{nodes} nodes"
    share = f", {plan.value / 1000:.1f} of {plan.ideal / 1000:.1f} GB/s" if plan.ideal else ""  # pattern None asks for none
    return f"all workers have their places on {where}, level {plan.level}{share}"


def waiting_message(rejection: Rejection, gang: Gang, *, kept: bool = False) -> str:
    """Why a gang waits, one sentence for people. Without counts that change with every other pod: each change would be a
    write for each waiting gang; the explain API has the counts of the moment. `kept`: some GPUs are free, but for others.
    """
    if rejection.reason is not Reason.DOES_NOT_FIT_NOW or rejection.have >= rejection.need:
        return sentence(rejection)
    beside = " beside the GPUs that are kept for a gang that waits longer" if kept else ""
    return f"there is no room for all workers now{_demands(gang.gpu_request)}{beside}; the gang waits and holds nothing"


def _demands(asked: GpuRequest) -> str:
    """What else than a number of GPUs may be in the way."""
    link = f"requiredLink {asked.required_link}" if asked.required_link != "Any" else ""
    found = [*filter(None, [link, "sameNUMANode true" if asked.same_numa_node else ""])]
    return f" with {' and '.join(found)}" if found else ""


def annotations_of(seat: SeatRecord, plan: PlanRecord, pod: PodView) -> dict[str, str]:
    """What the release writes on a pod.

    A gang of one may also go to another node that reaches `min-value`: for a job that is sensitive to bandwidth the value it
    was planned with, else nothing.
    """
    lone = len(plan.pods) == 1 and bool(seat.gpus)
    enough = (seat.value if gpu_request_of(pod.annotations).sensitive else 0) if lone else None
    return planned_seat.encode(PlannedSeat(seat.node, seat.rank, seat.gpus, enough))


def release_patch(pod: PodView, notes: dict[str, str]) -> list[dict[str, Any]]:
    """The JSON patch that removes the gate and writes the plan; it fails where the pod is another one or has no such gate."""
    gate: list[dict[str, Any]] = [
        {"op": "test", "path": _GATE_PATH, "value": {"name": contract.GATE}},
        {"op": "remove", "path": _GATE_PATH},
    ]
    same, *written = annotation_patch(pod, notes)
    return [same, *(gate if pod.gated else ()), *written]


def annotation_patch(pod: PodView, notes: dict[str, str]) -> list[dict[str, Any]]:
    """The JSON patch that writes annotations; it fails where the pod is another one."""
    same = {"op": "test", "path": "/metadata/uid", "value": pod.uid}
    if not pod.annotated:
        return [same, {"op": "add", "path": "/metadata/annotations", "value": notes}]
    escaped = ((key.replace("~", "~0").replace("/", "~1"), value) for key, value in notes.items())
    return [same, *({"op": "add", "path": f"/metadata/annotations/{key}", "value": value} for key, value in escaped)]
