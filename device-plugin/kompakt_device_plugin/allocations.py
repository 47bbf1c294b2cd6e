"""Who holds which GPU of the node: by kubelet's list, by what was held before, and by what was handed over."""

import logging
from collections.abc import Collection
from typing import Final

from kompakt_client.requests import Object
from kompakt_core.contract.gpu_holders import GpuHolder
from kompakt_core.ids import GpuUuid, PodUid
from kompakt_device_plugin import processes
from kompakt_device_plugin.devices import Devices
from kompakt_device_plugin.journal import Journal, JournalEntry, still_open, with_pending
from kompakt_device_plugin.orphaned_allocations import Alive, orphaned, predecessors, without
from kompakt_device_plugin.podresources import PodResources
from kompakt_device_plugin.pods import Gone, NodePod, NodePods
from kompakt_device_plugin.reconcile import PodKey, held_in, held_of, keep, running

log = logging.getLogger(__name__)

# For how long a pod deleted by force counts as running whatever is seen of it: kubelet may be about to start its container,
# or, where other containers' processes are not seen, about to kill it (it gives such a pod two seconds).
STARTING_SECONDS: Final = 1.0
UNSEEN_SECONDS: Final = 5.0


class StillRunning:
    """Which pods may still have processes: those that are seen to, and those deleted so lately that nobody can tell."""

    def __init__(self, pods: NodePods, alive: Alive = processes.alive) -> None:
        """`alive` answers which pods have processes that this container sees."""
        self._pods, self._alive = pods, alive
        self.unseen_for = STARTING_SECONDS if processes.sees_others() else UNSEEN_SECONDS

    def __call__(self, uids: Collection[PodUid]) -> frozenset[PodUid]:
        young = frozenset(one.pod.uid for one in self._pods.gone() if one.seconds < self.unseen_for)
        return young.intersection(uids) | frozenset(self._alive(frozenset(uids) - young))


class Allocations:
    """`held` is what stands in `status.held` after the last reading; None before the first one."""

    def __init__(
        self, resources: PodResources, pods: NodePods, devices: Devices, journal: Journal, still_running: StillRunning
    ) -> None:
        self._resources, self._pods, self._devices, self._journal = resources, pods, devices, journal
        self._still_running = still_running
        self.held: tuple[GpuHolder, ...] | None = None
        self._flaws: tuple[str, ...] = ()  # of the report before ours, as logged

    def look(
        self, live: Object | None, pods: tuple[NodePod, ...], handed: tuple[JournalEntry, ...]
    ) -> dict[PodKey, frozenset[GpuUuid]]:
        """The GPUs of each pod that has some; `held` adds those of pods that kubelet does not list yet, or any more.

        `live` is the node's GPUTopology; `handed` was read before `pods`. Raises grpc.RpcError where kubelet does not answer.
        """
        before = self._before(live)
        gone = self._pods.gone()
        listed = self._resources.taken()
        earlier = predecessors(before, handed, listed, pods)
        listed = without(listed, earlier)
        taken = running(keep(before, listed, pods), pods)
        left = orphaned(before, handed, taken, pods, [one.pod for one in gone], self._still_running)
        orphaned_uuids = frozenset(one.uuid for one in left)
        self._devices.set_orphaned(orphaned_uuids)
        still = still_open(handed, listed, pods)
        self._journal.end([entry for entry in handed if entry not in still and orphaned_uuids.isdisjoint(entry.gpus)])
        self._forget(gone, left, taken)
        pending = [entry for entry in still if entry not in self._journal.in_vain]
        theirs = {one.uuid: one for one in (*earlier, *left)}
        self.held = with_pending((*held_of(taken, pods, [one.pod for one in gone]), *theirs.values()), pending)
        self._devices.keep(self.held)
        return taken

    def _before(self, live: Object | None) -> tuple[GpuHolder, ...]:
        """What was held until now, without what kubelet offers again although it never listed it."""
        lost = {held for entry in self._journal.in_vain for held in entry.held}
        return tuple(one for one in (self._reported(live) if self.held is None else self.held) if one not in lost)

    def _reported(self, live: Object | None) -> tuple[GpuHolder, ...]:
        """What the report of the process before this one says. An entry that names no GPU says nothing here: kubelet, journal
        and processes know as well who has what, and the next report replaces it.
        """
        report = held_in(live)
        if report.flaws != self._flaws:
            self._flaws = report.flaws
            for flaw in report.flaws:
                log.error("the last report of this node: %s", flaw)
        return report.held

    def _forget(self, gone: Collection[Gone], left: Collection[GpuHolder], taken: Collection[PodKey]) -> None:
        """What was deleted so long ago, has nothing any more and is not listed by kubelet is over."""
        uids = {one.pod_uid for one in left}
        old = (one.pod for one in gone if one.seconds >= self._still_running.unseen_for)
        self._pods.forget(pod.uid for pod in old if pod.uid not in uids and pod.key not in taken)
