"""Reads what kubelet, journal, pods and processes say of the node's GPUs, and does what follows (holding.py)."""

import logging
from collections.abc import Collection, Mapping
from typing import Final

from kompakt_client.requests import Object
from kompakt_core import contract
from kompakt_core.contract.claimed_devices import ClaimedDevice
from kompakt_core.ids import GpuUuid, PodUid
from kompakt_device_plugin import processes
from kompakt_device_plugin.devices import Devices
from kompakt_device_plugin.holding import Held, NodeHolding, NodeWitnesses, next_holding, suspects
from kompakt_device_plugin.journal import Journal, JournalEntry
from kompakt_device_plugin.orphaned_allocations import Alive
from kompakt_device_plugin.podresources import NO_DEVICES, PodResources
from kompakt_device_plugin.pods import NodePod, NodePods
from kompakt_device_plugin.reconcile import PodKey, held_in
from kompakt_device_plugin.rivals import unserved

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
        young = self.young()
        return young.intersection(uids) | self.seen(frozenset(uids) - young)

    def young(self) -> frozenset[PodUid]:
        """The pods that were deleted so lately."""
        return frozenset(one.pod.uid for one in self._pods.gone() if one.seconds < self.unseen_for)

    def seen(self, uids: Collection[PodUid]) -> frozenset[PodUid]:
        """Those of these pods that have processes."""
        return frozenset(self._alive(uids))


class Allocations:
    """`held` is what stands in `status.held` after the last reading; None before the first one."""

    def __init__(
        self, resources: PodResources, pods: NodePods, devices: Devices, journal: Journal, still_running: StillRunning
    ) -> None:
        self._resources, self._pods, self._devices, self._journal = resources, pods, devices, journal
        self._still_running = still_running
        self.held: Held | None = None
        self.unserved: frozenset[PodKey] = frozenset()  # pods that somebody else gave GPUs to, for as long as they have them
        self._flaws: tuple[str, ...] = ()  # of the report before ours, as logged

    def look(
        self,
        live: Object | None,
        pods: tuple[NodePod, ...],
        handed: tuple[JournalEntry, ...],
        claimed: Mapping[ClaimedDevice, GpuUuid] = NO_DEVICES,
    ) -> dict[PodKey, frozenset[GpuUuid]]:
        """The GPUs of each pod that has some; `held` adds those of pods that kubelet does not list yet, or any more.

        `live` is the node's GPUTopology; `handed` was read before `pods`; `claimed`: GPUs that pods may have by claims. Raises
        grpc.RpcError where kubelet does not answer.
        """
        before = self._reported(live) if self.held is None else self.held
        seen = self._read(pods, handed, claimed)
        unknown = suspects(before, seen)
        found = next_holding(before, seen, self._still_running.seen(unknown) if unknown else ())
        served = (*handed, *self._journal.entries)  # what was handed over since may be listed already
        new = unserved(found.taken, before, served, pods) if self.held is not None else ()
        self.unserved = (self.unserved & found.taken.keys()).union(new)
        self._take(found)
        return dict(found.taken)

    def rival(self, resource: str) -> str:
        """How another plugin of the same resource shows in what pods have; empty where none does. None serves ours."""
        if resource == contract.RESOURCE or not self.unserved:
            return ""
        namespace, pod = min(self.unserved)
        return f"{resource} too (pod {namespace}/{pod} has GPUs that kompakt did not hand out)"

    def _read(
        self, pods: tuple[NodePod, ...], handed: tuple[JournalEntry, ...], claimed: Mapping[ClaimedDevice, GpuUuid]
    ) -> NodeWitnesses:
        gone, young = tuple(one.pod for one in self._pods.gone()), self._still_running.young()
        listed = self._resources.taken(claimed)
        return NodeWitnesses(listed, handed, self._journal.in_vain, pods, gone, young)

    def _take(self, found: NodeHolding) -> None:
        """What must not be handed over is known before the journal forgets anything."""
        self.held = found.held
        self._devices.set_orphaned(found.orphaned)
        self._devices.keep(found.held)
        self._journal.disown(found.ownerless)
        self._journal.end(found.over)
        self._pods.forget(found.ended)

    def _reported(self, live: Object | None) -> Held:
        """What the report of the process before this one says. An entry that names no GPU says nothing here: kubelet, journal
        and processes know as well who has what, and the next report replaces it.
        """
        report = held_in(live)
        if report.flaws != self._flaws:
            self._flaws = report.flaws
            for flaw in report.flaws:
                log.error("the last report of this node: %s", flaw)
        return report.held
