"""GPUs of pods that API server and kubelet have forgotten, but that are not known to have ended. Pure.

That is what deleting a pod by force does (grace period 0): kubelet gives its GPUs away while it still ends the containers.
Three things know which GPUs such a pod may have: what was held in the last report, what was handed over, and, where nothing
was written on the pod when that happened, its size.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from kompakt_core.contract.gpu_holders import GpuHolder
from kompakt_core.ids import GpuUuid, PodUid
from kompakt_device_plugin.journal import JournalEntry
from kompakt_device_plugin.pods import NodePod
from kompakt_device_plugin.reconcile import PodKey

Alive = Callable[[Collection[PodUid]], Collection[PodUid]]  # those of these pods that have processes, or may get some yet


def nobodys(
    before: Iterable[GpuHolder],
    handed: Iterable[JournalEntry],
    taken: Mapping[PodKey, frozenset[GpuUuid]],
    pods: Iterable[NodePod],
    gone: Collection[NodePod],
) -> tuple[GpuHolder, ...]:
    """What pods that nobody knows any more had, and kubelet has not given to others.

    `before` was held in the last report, `handed` is what was handed over lately, `taken` what kubelet says now; `pods` are
    those that the API server knows, `gone` those that it forgot although they had not finished.
    """
    known = {pod.uid for pod in pods}
    given = frozenset[GpuUuid]().union(*taken.values())
    had = (*before, *owned(handed, gone))
    return tuple(one for one in had if one.pod_uid and one.pod_uid not in known and one.uuid not in given)


def orphaned(had: Iterable[GpuHolder], alive: Collection[PodUid]) -> tuple[GpuHolder, ...]:
    """What those of them still have that run, each GPU once."""
    return tuple({one.uuid: one for one in had if one.pod_uid in alive}.values())


def predecessors(
    before: Iterable[GpuHolder],
    handed: Iterable[JournalEntry],
    listed: Mapping[PodKey, frozenset[GpuUuid]],
    pods: Iterable[NodePod],
) -> tuple[GpuHolder, ...]:
    """What kubelet lists under the name of one of the `pods` and is not that pod's, but of an earlier one of that name.

    kubelet's list says names only. A pod has what was handed over to it, so what an earlier pod `before` had, or was handed,
    is that pod's until it is handed over once more.
    """
    now = {pod.key: pod.uid for pod in pods}
    had = {one.uuid: one for one in before}
    for entry in handed:
        had.update((one.uuid, one) for one in entry.held)
    return tuple(
        one
        for one in had.values()
        if one.pod_uid
        and one.uuid in listed.get((one.namespace, one.pod), ())
        and now.get((one.namespace, one.pod), one.pod_uid) != one.pod_uid
    )


def without(listed: Mapping[PodKey, frozenset[GpuUuid]], held: Iterable[GpuHolder]) -> dict[PodKey, frozenset[GpuUuid]]:
    """The list without these GPUs, and without those who have nothing then."""
    uuids = {one.uuid for one in held}
    return {key: gpus - uuids for key, gpus in listed.items() if gpus - uuids}


def owned(handed: Iterable[JournalEntry], gone: Collection[NodePod]) -> Iterator[GpuHolder]:
    """What was handed over, by whoever may have got it: where that is unknown, each forgotten pod of that size."""
    for entry in handed:
        if entry.pod_uid:
            yield from entry.held
        else:
            fitting = (pod for pod in gone if pod.size == len(entry.gpus))
            yield from (GpuHolder(uuid, *pod.key, pod.uid) for pod in fitting for uuid in entry.gpus)


def unsure(in_vain: Iterable[JournalEntry]) -> tuple[JournalEntry, ...]:
    """What kubelet offers again although it was handed over, of nobody in particular. Who asks is found by what is written on the
    pods: of two that asked for as many at once, one may have got the other's set, and have been deleted by force since.
    """
    return tuple(JournalEntry(entry.gpus) for entry in in_vain)


def tenants(
    gpus: Collection[GpuUuid],
    held: Iterable[GpuHolder],
    handed: Iterable[JournalEntry],
    candidates: Collection[NodePod],
    ended: Collection[PodUid],
) -> frozenset[PodUid]:
    """Pods that may have been given one of these GPUs and have not `ended`, whoever knows them still.

    Where it is unknown who was given a set, it is one of the `candidates` that asked for so many.
    """
    theirs = (one.pod_uid for one in (*held, *owned(handed, candidates)) if one.uuid in gpus)
    return frozenset(PodUid(uid) for uid in theirs if uid and uid not in ended)
