"""The GPUs that pods really hold against those written on them: the real ones win. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kompakt_client.events import Occurrence, Regarding
from kompakt_client.requests import Object
from kompakt_core.contract import bound_gpus, gpu_holders
from kompakt_core.contract.bound_gpus import BoundGpus
from kompakt_core.contract.gpu_holders import GpuHolder, HolderReport
from kompakt_core.ids import GpuIndex, GpuUuid, MegabytesPerSecond, PodUid
from kompakt_core.placement.given_set import in_order
from kompakt_core.topology.graph import LinkGraph
from kompakt_device_plugin.correction_order import in_turn
from kompakt_device_plugin.pods import NodePod

PodKey = tuple[str, str]  # namespace, name


@dataclass(frozen=True, slots=True)
class Correction:
    """What has to be written on a pod: the GPUs it really holds, in the order of its pattern.

    No GPUs: it goes on to hold what it holds, which stands on another pod until that one is corrected.
    """

    pod: NodePod
    gpus: tuple[GpuUuid, ...]
    indices: tuple[GpuIndex, ...]
    value: MegabytesPerSecond
    flaw: str = ""  # why what was written on the pod was of no use


def keep(
    before: Iterable[GpuHolder], now: Mapping[PodKey, frozenset[GpuUuid]], pods: Iterable[NodePod]
) -> dict[PodKey, frozenset[GpuUuid]]:
    """What kubelet says now, and what was held before by unfinished pods that it does not mention.

    A pod keeps its GPUs to its end, but a kubelet that has just started lists no pods for a moment.
    """
    living = {(pod.key, pod.uid) for pod in pods if not pod.finished}
    given = frozenset[GpuUuid]().union(*now.values())
    kept = dict(now)
    for held in before:
        key = (held.namespace, held.pod)
        if key not in now and held.uuid not in given and (key, held.pod_uid) in living:
            kept[key] = kept.get(key, frozenset()) | {held.uuid}
    return kept


def held_in(topology: Mapping[str, Any] | None) -> HolderReport:
    """`status.held` of a GPUTopology, as far as it can be read."""
    return gpu_holders.readable(((topology or {}).get("status") or {}).get("held"))


def running(taken: Mapping[PodKey, frozenset[GpuUuid]], pods: Iterable[NodePod]) -> dict[PodKey, frozenset[GpuUuid]]:
    """`taken` without pods that have finished: kubelet lists those on, but gives their GPUs away again."""
    finished = {pod.key for pod in pods if pod.finished}
    return {key: gpus for key, gpus in taken.items() if gpus and key not in finished}


def held_of(
    taken: Mapping[PodKey, frozenset[GpuUuid]], pods: Iterable[NodePod], gone: Iterable[NodePod] = ()
) -> tuple[GpuHolder, ...]:
    """`status.held` for what is taken, by UUID; a pod that is neither among `pods` nor among those that were deleted while
    kubelet listed them (`gone`) has no uid.

    A GPU stands there once, for the pod that came last: kubelet may list a pod that just ended beside its successor.
    """
    uids = {pod.key: pod.uid for pod in pods}
    before = {pod.key: pod.uid for pod in gone}
    arrival = {key: number for number, key in enumerate(uids)}
    oldest_first = sorted(taken, key=lambda key: (arrival.get(key, -1), key))
    held = {
        uuid: GpuHolder(uuid, *key, uids.get(key, before.get(key, PodUid("")))) for key in oldest_first for uuid in taken[key]
    }
    return tuple(sorted(held.values()))


def holders(taken: Mapping[PodKey, frozenset[GpuUuid]], pods: Iterable[NodePod]) -> frozenset[PodUid]:
    """The pods that hold GPUs."""
    return frozenset(pod.uid for pod in pods if pod.key in taken)


def corrections(taken: Mapping[PodKey, frozenset[GpuUuid]], pods: Iterable[NodePod], graph: LinkGraph) -> tuple[Correction, ...]:
    """What to write, in this order, on pods on which another set is written than they hold. GPUs that the graph does not know
    are left alone.

    No GPU stands on two unfinished pods at any moment (correction_order.in_turn), so that a pod may have to wait for another
    round. A kubelet that was killed and comes back admits pods anew that had ended, or were being deleted, before it could
    say so. It may name such a pod, of which it starts nothing any more, beside the one that came later and has its GPU by
    now, or give it what is meant for a pod that it has not looked at. What it says of those comes next.
    """
    known, by_uid = {gpu.uuid for gpu in graph.gpus}, {pod.uid: pod for pod in pods}
    latest = {uuid: pod.uid for pod in by_uid.values() for uuid in taken.get(pod.key, ())}
    wrong = {uid: taken[pod.key] for uid, pod in by_uid.items() if pod.key in taken and taken[pod.key] != set(pod.gpus)}
    changes = {uid: gpus for uid, gpus in wrong.items() if gpus <= known and all(latest[uuid] == uid for uuid in gpus)}
    standing = {uid: frozenset(pod.gpus) for uid, pod in by_uid.items() if not pod.finished}
    return tuple(correction(by_uid[uid], gpus, graph) for uid, gpus in in_turn(changes, standing))


def correction(pod: NodePod, gpus: frozenset[GpuUuid], graph: LinkGraph) -> Correction:
    """What to write on a pod that holds `gpus`, all of them known to the graph; none: nothing, until its turn comes."""
    if not gpus:
        return Correction(pod, (), (), MegabytesPerSecond(0))
    indices, value = in_order(gpus, graph, pod.gpu_request)
    return Correction(pod, tuple(graph.gpus[index].uuid for index in indices), indices, value, flaw_of(pod, graph))


def flaw_of(pod: NodePod, graph: LinkGraph) -> str:
    """Why the set written on a pod could not be given to it; empty where it could, and where nothing is written."""
    foreign = sorted(set(pod.gpus) - {gpu.uuid for gpu in graph.gpus})
    if not pod.written:
        return ""
    if not pod.gpus:
        return "it names a GPU twice, or none"
    if len(pod.gpus) != pod.size:
        return f"it names {len(pod.gpus)} GPUs, the pod asks for {pod.size}"
    return f"{foreign[0][:64]} is no GPU of this node" if foreign else ""


def annotations_of(correction: Correction) -> Object:
    """The apply body with the three annotations; the uid keeps a later pod of the same name untouched."""
    pod = correction.pod
    notes = bound_gpus.encode(BoundGpus(correction.gpus, correction.indices, correction.value))
    meta = {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid, "annotations": notes}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta}


def event_of(correction: Correction) -> Occurrence:
    """What is told of a correction."""
    pod, given = correction.pod, ", ".join(correction.gpus)
    why = f" ({correction.flaw})" if correction.flaw else ""
    if pod.written:
        text = f"it holds {given}, but written on the pod was{why}: {pod.written}"
        kind, reason = "Warning", "GPUSetCorrected"
    else:
        kind, reason, text = "Normal", "GPUSetReported", f"no GPUs were written on the pod; it holds {given}"
    return Occurrence(Regarding("v1", "Pod", pod.name, pod.uid, pod.namespace), kind, reason, "Correcting", text)
