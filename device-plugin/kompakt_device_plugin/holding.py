"""Who holds which GPU of the node: one step from what was held before and what is seen now to what is held now. Pure.

Four witnesses know something: kubelet's list (by name, and not at every moment), the journal of what was handed over, the pods
that the API server has or has forgotten, and the processes of those that it has forgotten.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from kompakt_core.contract.gpu_holders import GpuHolder
from kompakt_core.ids import GpuUuid, PodUid
from kompakt_device_plugin.journal import JournalEntry, disowned, still_open, with_pending
from kompakt_device_plugin.orphaned_allocations import nobodys, orphaned, predecessors, without
from kompakt_device_plugin.pods import NodePod
from kompakt_device_plugin.reconcile import PodKey, held_of, keep, running

Held = tuple[GpuHolder, ...]


@dataclass(frozen=True, slots=True)
class NodeWitnesses:
    """What is seen at one moment.

    `listed`: kubelet's list. `handed`: the journal, read before `pods`: what is handed over later is not judged yet; `in_vain`:
    entries whose GPUs kubelet has offered again since. `pods`: those that the API server knows, `gone` those that it forgot
    although they had not finished, `young` of these whom it forgot so lately that nobody can tell whether they run.
    """

    listed: Mapping[PodKey, frozenset[GpuUuid]]
    handed: tuple[JournalEntry, ...]
    in_vain: frozenset[JournalEntry]
    pods: tuple[NodePod, ...]
    gone: tuple[NodePod, ...]
    young: frozenset[PodUid]


@dataclass(frozen=True, slots=True)
class NodeHolding:
    """What follows. `taken`: the GPUs of each pod that kubelet knows; `held`: as `status.held`, with those of pods that kubelet
    does not list yet, or any more; `orphaned`: GPUs that must not be handed over, though kubelet takes them for free.

    `over`: entries that the journal needs no longer; `ownerless`: those that are another pod's than they say. `ended`: forgotten
    pods whose end is known.
    """

    taken: Mapping[PodKey, frozenset[GpuUuid]]
    held: Held
    orphaned: frozenset[GpuUuid]
    over: tuple[JournalEntry, ...]
    ownerless: frozenset[JournalEntry]
    ended: frozenset[PodUid]


@dataclass(frozen=True, slots=True)
class _KubeletsWord:
    """What kubelet's list says: `earlier`: what it lists under a name and is of an earlier pod of that name. `vain`: what was
    handed over and nobody has; `handed`: the journal, with no owner for what its pod cannot have been given.
    """

    before: Held
    vain: frozenset[JournalEntry]
    handed: tuple[JournalEntry, ...]
    earlier: Held
    listed: Mapping[PodKey, frozenset[GpuUuid]]
    taken: Mapping[PodKey, frozenset[GpuUuid]]


def suspects(before: Held, seen: NodeWitnesses) -> frozenset[PodUid]:
    """Pods of which only processes tell whether they have GPUs; `next_holding` has to know. Those that nobody knows any more,
    without the young, and those whose GPUs kubelet has offered again.
    """
    unknown = frozenset(PodUid(one.pod_uid) for one in _nobodys(_told(before, seen, frozenset()), seen)) - seen.young
    return unknown.union(entry.pod_uid for entry in seen.in_vain if entry.pod_uid)


def next_holding(before: Held, seen: NodeWitnesses, alive: Iterable[PodUid]) -> NodeHolding:
    """`before`: what was held after the look before this one. `alive`: those of the suspects that have processes."""
    alive = frozenset(alive)
    told = _told(before, seen, alive)
    left = orphaned(_nobodys(told, seen), seen.young | alive)
    lost = frozenset(one.uuid for one in left)
    still = still_open(told.handed, told.listed, seen.pods)
    pending = [entry for entry in still if entry not in told.vain]
    theirs = {one.uuid: one for one in (*told.earlier, *left)}
    listed = _with_uids(held_of(told.taken, seen.pods, seen.gone), told.before, seen.handed)
    return NodeHolding(
        taken=told.taken,
        held=with_pending((*listed, *theirs.values()), pending),
        orphaned=lost,
        over=tuple(entry for entry in told.handed if entry not in still and lost.isdisjoint(entry.gpus)),
        ownerless=frozenset(seen.handed) - frozenset(told.handed),
        ended=_ended(told, seen, left),
    )


def _told(before: Held, seen: NodeWitnesses, alive: frozenset[PodUid]) -> _KubeletsWord:
    """What kubelet offers again although it never listed it was handed over in vain, unless its pod has processes: kubelet may
    have forgotten that pod before the watch tells that it was deleted by force.
    """
    vain = frozenset(entry for entry in seen.in_vain if entry.pod_uid not in alive)
    lost = {held for entry in vain for held in entry.held}
    before = tuple(one for one in before if one not in lost)
    earlier = predecessors(before, seen.handed, seen.listed, seen.pods)
    listed = without(seen.listed, earlier)
    handed, vain = disowned(seen.handed, listed, seen.pods), frozenset(disowned(vain, listed, seen.pods))
    return _KubeletsWord(before, vain, handed, earlier, listed, running(keep(before, listed, seen.pods), seen.pods))


def _with_uids(held: Held, before: Held, handed: Iterable[JournalEntry]) -> Held:
    """kubelet may list a pod that the API server forgot before this process began: its uid is known from then. Without it nobody
    would look for its processes once kubelet forgets the pod as well.
    """
    had = (*(one for entry in handed for one in entry.held), *before)
    uids = {(one.uuid, one.namespace, one.pod): one.pod_uid for one in had if one.pod_uid}
    known = ((one, uids.get((one.uuid, one.namespace, one.pod), PodUid(""))) for one in held)
    return tuple(one if one.pod_uid else replace(one, pod_uid=uid) for one, uid in known)


def _nobodys(told: _KubeletsWord, seen: NodeWitnesses) -> Held:
    return nobodys(told.before, told.handed, told.taken, seen.pods, seen.gone)


def _ended(told: _KubeletsWord, seen: NodeWitnesses, left: Held) -> frozenset[PodUid]:
    """What was deleted a while ago, has nothing any more and is not listed by kubelet is over."""
    has = {one.pod_uid for one in left}
    old = (pod for pod in seen.gone if pod.uid not in seen.young)
    return frozenset(pod.uid for pod in old if pod.uid not in has and pod.key not in told.taken)
