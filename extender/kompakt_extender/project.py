"""From pods and nodes to what the caches keep of them."""

import sys
from collections.abc import Callable, Collection, Mapping
from typing import Final

import msgspec

from kompakt_core import contract
from kompakt_core.contract import INPUT_ANNOTATIONS, gang_member, gpu_claim, job_owner, timestamps
from kompakt_core.contract.gang_member import GangMember
from kompakt_core.errors import InvalidInput
from kompakt_core.ids import NodeName, PodUid
from kompakt_core.job.limited import DEFAULT_GRACE_SECONDS
from kompakt_core.placement.model import Taint
from kompakt_extender import node_rules
from kompakt_extender.objects import Container, Meta, NodeObject, Pod, PodSpec, Resources
from kompakt_extender.quantities import count, millis, whole
from kompakt_extender.views import NOTHING, NodeView, PodView, gang_uid

ANNOTATIONS: Final = tuple(sorted(contract.INPUT_ANNOTATIONS | contract.OWN_ANNOTATIONS))
SCALE_DOWN_DISABLED: Final = "cluster-autoscaler.kubernetes.io/scale-down-disabled"  # of a node
MOST_GATES: Final = 8
_POD = msgspec.json.Decoder(Pod)
_NODE = msgspec.json.Decoder(NodeObject)


def pod_view(pod: Pod, resource: str = contract.RESOURCE) -> PodView:
    """The projection of a pod; requests that make no sense, or are too large to be read, end up in `problem`. `resource`: by
    which name GPUs are asked for, here and below.

    Whoever may create pods may write a megabyte into each: what is not asked of us is not kept.
    """
    gpus, problem = _gpus(pod, resource)
    meta = pod.metadata
    if gpus or job_uid(meta):
        return _asking(pod, gpus, problem)
    return _bare(pod)


def _bare(pod: Pod) -> PodView:
    """Who it is, where it runs, and what it takes there."""
    meta, spec = pod.metadata, pod.spec
    cpu, memory = _requests(pod)
    return PodView(
        uid=PodUid(meta.uid),
        namespace=meta.namespace,
        name=meta.name,
        job_uid=job_uid(meta),
        version=int(meta.resource_version) if meta.resource_version.isascii() and meta.resource_version.isdigit() else 0,
        node=node_name(spec.node_name) if spec.node_name else None,
        phase=pod.status.phase,
        deleting=meta.deletion_timestamp is not None,
        ours=spec.scheduler_name == contract.SCHEDULER_NAME or gpu_claim.is_asked(meta.annotations or NOTHING),
        cpu_millis=cpu,
        memory_bytes=memory,
        priority=spec.priority or 0,
    )


def _asking(pod: Pod, gpus: int, problem: str) -> PodView:
    """A pod that asks for GPUs, or works for a job."""
    meta, spec, bare = pod.metadata, pod.spec, _bare(pod)
    waits = bare.ours and bare.node is None and not bare.finished
    annotations = _own(meta.annotations, ANNOTATIONS)
    large = node_rules.too_large(spec, annotations) if waits else ""
    gang, unreadable = _gang(meta, bare.job_uid)
    return msgspec.structs.replace(
        bare,
        reason=pod.status.reason or "",
        started=any(status.container_id for status in pod.status.container_statuses or ()),
        gates=_gates(spec),
        gpus=gpus,
        problem=problem or large or unreadable,
        preempts=spec.preemption_policy != "Never",
        priority_class=spec.priority_class_name or "",
        grace_seconds=_grace(spec),
        controlled=any(one.get("controller") is True for one in meta.owner_references or ()),
        created=meta.creation_timestamp or "",
        since=timestamps.seconds(pod.status.start_time),
        labels=_own(meta.labels, contract.WORKER_LABELS),
        annotations={key: text for key, text in annotations.items() if key not in INPUT_ANNOTATIONS} if large else annotations,
        annotated=meta.annotations is not None,
        rules=node_rules.written(spec) if waits and not large else node_rules.NO_RULES,
        gang=gang,
        mounts_claims=any(v.persistent_volume_claim or v.ephemeral for v in spec.volumes or ()),
    )


def _gates(spec: PodSpec) -> tuple[str, ...]:
    """Ours, and as many of others as are worth telling."""
    names = [gate.name for gate in spec.scheduling_gates or ()]
    return (*(name for name in names[MOST_GATES:] if name == contract.GATE), *names[:MOST_GATES])


def request_view(pod: Pod, resource: str = contract.RESOURCE) -> PodView:
    """Of a pod only what filter and prioritize look at: who asks for how many GPUs, and how."""
    gpus, problem = _gpus(pod, resource)
    meta = pod.metadata
    annotations, uid = _own(meta.annotations, ANNOTATIONS), job_uid(meta)
    return PodView(
        PodUid(meta.uid),
        meta.namespace,
        meta.name,
        job_uid=uid,
        gpus=gpus,
        problem=problem or node_rules.too_large(pod.spec, annotations) or _gang(meta, uid)[1],
        labels=_own(meta.labels, contract.WORKER_LABELS),
        annotations=annotations,
        priority_class=pod.spec.priority_class_name or "",
        grace_seconds=_grace(pod.spec),
    )


def _grace(spec: PodSpec) -> int:
    found = spec.termination_grace_period_seconds
    return DEFAULT_GRACE_SECONDS if found is None else found


def node_view(node: NodeObject, resource: str = contract.RESOURCE) -> NodeView:
    """The projection of a node."""
    allocatable = node.status.allocatable or {}
    ready = any(c.type == "Ready" and c.status == "True" for c in node.status.conditions or ())
    return NodeView(
        name=node_name(node.metadata.name),
        uid=node.metadata.uid,
        labels=node.metadata.labels or NOTHING,
        taints=tuple(Taint(t.key, t.effect, t.value or "") for t in node.spec.taints or ()),
        unschedulable=bool(node.spec.unschedulable),
        ready=ready,
        cpu_millis=millis(allocatable.get("cpu", 0)),
        memory_bytes=whole(allocatable.get("memory", 0)),
        pods=whole(allocatable.get("pods", 0)),
        gpus=count(allocatable.get(resource, 0)),
        marked=SCALE_DOWN_DISABLED in (node.metadata.annotations or NOTHING),
    )


def node_name(text: str) -> NodeName:
    """One string for each name, wherever it stands: thousands are looked up at once, and the same object is found faster."""
    return NodeName(sys.intern(text))


def job_uid(meta: Meta) -> str:
    """The TrainingJob of its namespace that it works for, or the gang of pods that others made; empty for none."""
    labels = meta.labels or NOTHING
    owner = job_owner.referred(meta.namespace, labels, meta.owner_references or ())
    if owner is not None:
        return owner.uid
    name = gang_member.name(labels)
    return gang_uid(meta.namespace, name) if name else ""


def _gang(meta: Meta, uid: str) -> tuple[GangMember | None, str]:
    """What a pod says of the gang that it belongs to, if that is none of a TrainingJob; or what is wrong with it."""
    labels = meta.labels or NOTHING
    if uid not in ("", gang_uid(meta.namespace, gang_member.name(labels))):
        return None, ""
    try:
        return gang_member.decode(labels, meta.annotations or NOTHING), ""
    except InvalidInput as error:
        return None, str(error)


def _own(texts: Mapping[str, str] | None, keys: Collection[str]) -> Mapping[str, str]:
    return {key: texts[key] for key in keys if key in texts} or NOTHING if texts else NOTHING


def _gpus(pod: Pod, resource: str) -> tuple[int, str]:
    try:
        by_claim = gpu_claim.size(pod.metadata.annotations or NOTHING)
    except InvalidInput as error:
        return 1, str(error)
    return _gpus_by_resource(pod, resource) if by_claim is None else (by_claim, "")


def _gpus_by_resource(pod: Pod, resource: str) -> tuple[int, str]:
    try:
        amounts = [_gpu_request(c, resource) for c in pod.spec.containers or ()]
        early = [_gpu_request(c, resource) for c in pod.spec.init_containers or ()]
    except InvalidInput as error:
        return 1, str(error)
    total = sum(amounts)
    if any(early):
        return max(total, *early), "an init container asks for GPUs: ask for them in the one container that trains"
    if sum(amount > 0 for amount in amounts) > 1:
        return total, "more than one container asks for GPUs: exactly one container of a pod can use them"
    return total, ""


def _gpu_request(container: Container, resource: str) -> int:
    resources = container.resources or Resources()
    for side in (resources.requests, resources.limits):
        if side and resource in side:
            return count(side[resource])
    return 0


def _requests(pod: Pod) -> tuple[int, int]:
    overhead = pod.spec.overhead or {}
    try:
        return (
            _effective(pod, "cpu", millis) + millis(overhead.get("cpu", 0)),
            _effective(pod, "memory", whole) + whole(overhead.get("memory", 0)),
        )
    except InvalidInput:
        return 0, 0  # the API server admits no such quantity; a made-up request must not stop the process


def _effective(pod: Pod, resource: str, read: Callable[[str | float], int]) -> int:
    """What kube-scheduler counts: containers and sidecars together, or the greediest init container if that is more.

    Source: KEP-753 (sidecar containers), "Resources calculation for scheduling and pod admission".
    """

    def of(container: Container) -> int:
        resources = container.resources or Resources()
        return read((resources.requests or resources.limits or {}).get(resource, 0))

    sidecars, peak = 0, 0
    for container in pod.spec.init_containers or ():
        amount = of(container)
        if container.restart_policy == "Always":
            sidecars += amount
            peak = max(peak, sidecars)
        else:
            peak = max(peak, sidecars + amount)
    return max(peak, sidecars + sum(map(of, pod.spec.containers or ())))


def expected_view(raw: bytes, job_uid: str, namespace: str, resource: str = contract.RESOURCE) -> PodView:
    """A pod that does not exist yet, as its job's status tells of it.

    Raises:
        msgspec.MsgspecError: the operator never writes this.
    """
    pod = _POD.decode(raw)
    found = _asking(pod, *_gpus(pod, resource))
    node_rules.read(found.rules)
    return msgspec.structs.replace(found, namespace=namespace, job_uid=job_uid, node=None, phase="", exists=False)


def read_pod(raw: bytes, resource: str = contract.RESOURCE) -> PodView:
    """A pod's JSON."""
    return pod_view(_POD.decode(raw), resource)


def read_node(raw: bytes, resource: str = contract.RESOURCE) -> NodeView:
    """A node's JSON."""
    return node_view(_NODE.decode(raw), resource)
