"""Which GPUs of a node are taken, computed from API objects.

Taken = GPUs written on bound, unfinished pods + GPUs planned (from the planner's decision on) + GPUs the device plugin reports
as held + GPUs of binds whose outcome is not known yet + GPUs allocated by ResourceClaims + unhealthy GPUs. Everything here is
pure: views in, states out.
"""

from collections.abc import Iterable
from enum import StrEnum
from typing import Final

import msgspec

from kompakt_core import contract
from kompakt_core.ids import GpuMask, GpuUuid, NodeName, mask_of
from kompakt_core.placement.model import NodeState, Reason
from kompakt_core.topology.graph import LinkGraph
from kompakt_extender.node_rules import NAME_FIELD
from kompakt_extender.views import NodeView, PodView, TopologyView

# Labels of nodes that have GPUs before our device plugin reports any: ours, and that of NVIDIA's feature discovery.
_GPU_LABELS: Final = (contract.LABEL_MACHINE, contract.NVIDIA_GPU_PRESENT)


class ClaimSource(StrEnum):
    """Where a claim comes from."""

    ANNOTATION = "annotation"  # planned GPUs written on a released pod
    PLAN = "plan"  # decided by the planner, perhaps not written on the pod yet
    BIND = "bind"  # a bind was sent and the pod is not seen bound yet


class Claim(msgspec.Struct, frozen=True, gc=False):
    """GPUs of a node that are spoken for by a pod which is not seen on that node yet."""

    pod: PodView
    node: NodeName
    gpus: tuple[GpuUuid, ...]


def node_state(
    node: NodeView,
    topology: TopologyView | None,
    pods: Iterable[PodView],
    claims: Iterable[Claim],
    allocated: Iterable[GpuUuid] = (),
) -> NodeState:
    """One node from its own object, its GPUTopology, the unfinished pods bound to it, the claims on it, and what ResourceClaims
    have of it.
    """
    pods, claims = tuple(pods), tuple(claims)
    claimed = {claim.pod.uid: claim for claim in claims}  # a pod may claim twice, by plan and by bind: it needs CPU once
    waiting = [claim.pod for claim in claimed.values()]
    graph = topology.graph if topology else None
    return NodeState(
        name=node.name,
        graph=graph,
        taken=GpuMask(0) if graph is None else taken_gpus(graph, topology, pods, claims, allocated),
        labels={**node.labels, NAME_FIELD: node.name},
        taints=node.taints,
        unschedulable=node.unschedulable,
        ready=node.ready,
        problem=problem_of(node, topology, pods),
        free_cpu_millis=node.cpu_millis - sum(pod.cpu_millis for pod in (*pods, *waiting)),
        free_memory_bytes=node.memory_bytes - sum(pod.memory_bytes for pod in (*pods, *waiting)),
        free_pods=node.pods - len(pods) - len(waiting),
        cpu_millis=node.cpu_millis,
        memory_bytes=node.memory_bytes,
        pods=node.pods,
    )


def taken_gpus(
    graph: LinkGraph,
    topology: TopologyView | None,
    pods: Iterable[PodView],
    claims: Iterable[Claim],
    allocated: Iterable[GpuUuid],
) -> GpuMask:
    """The set of GPUs that must not be given away. UUIDs that the node does not have (any more) count for nothing."""
    index = {gpu.uuid: gpu.index for gpu in graph.gpus}
    named = {*allocated, *(uuid for uuid, _ in topology.held)} if topology else set(allocated)
    for pod in pods:
        named.update(pod.written_gpus)
    for claim in claims:
        named.update(claim.gpus)
    unhealthy = [gpu.index for gpu in graph.gpus if gpu.health != "Healthy"]
    return mask_of([*(index[uuid] for uuid in named if uuid in index), *unhealthy])


def problem_of(node: NodeView, topology: TopologyView | None, pods: Iterable[PodView]) -> Reason | None:
    """Why nothing can be decided about this node's GPUs, or None."""
    if topology is None or topology.graph is None:
        return Reason.NO_TOPOLOGY
    if topology.node_uid != node.uid or (topology.counted and topology.healthy != node.gpus):
        return Reason.STALE_TOPOLOGY
    if not topology.holders_known:
        return Reason.UNREADABLE_HOLDER  # any GPU may be the one that is held: rather none than one twice
    known = {gpu.uuid for gpu in topology.graph.gpus}
    reported = {uid for _, uid in topology.held}
    if any(not accounted(pod, known) and pod.uid not in reported for pod in pods):
        return Reason.UNREPORTED_POD
    return None


def announces_gpus(node: NodeView) -> bool:
    """Whether a GPUTopology is to be expected of this node."""
    return node.gpus > 0 or any(node.labels.get(label, "false") not in ("", "false") for label in _GPU_LABELS)


def accounted(pod: PodView, known: Iterable[str]) -> bool:
    """Whether the annotation of a bound pod says which GPUs it has: as many as it asked for, all of this node."""
    return len(pod.written_gpus) == pod.gpus and set(pod.written_gpus) <= set(known)
