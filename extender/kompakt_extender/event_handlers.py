"""Where the watches put what they see: into the ledger, the jobs, and the planner's queue."""

from collections.abc import Callable, Iterable, Mapping
from typing import Generic, TypeVar

from kompakt_core.contract.gpu_claim import ClaimedDevices
from kompakt_core.contract.scheduling_record import State
from kompakt_core.ids import NodeName, PodUid
from kompakt_extender.allocated_gpus import AllocatedGpus, ClaimView, SliceView
from kompakt_extender.jobs import Jobs
from kompakt_extender.ledger import GpuLedger
from kompakt_extender.metrics import ExtenderMetrics
from kompakt_extender.monitored_gpus import MonitoredGpus
from kompakt_extender.offered_gpus import OfferedGpus, RuleView
from kompakt_extender.planner.loop import Planner
from kompakt_extender.views import JobKind, JobView, LimitsView, NamespaceView, NodeView, PodView, TopologyView

View = TypeVar("View")
Seen = TypeVar("Seen")
# Reasons with which kubelet rejects a pod before any container starts; the second is a prefix (OutOfcpu, OutOfpods, ...).
_REJECTED = ("UnexpectedAdmissionError", "OutOf")


class KeyedSink(Generic[View]):
    """A sink made of three functions; a fresh list removes what it no longer holds."""

    def __init__(self, known: Callable[[], Iterable[str]], see: Callable[[View], None], lose: Callable[[str], None]) -> None:
        self._known = known
        self._see = see
        self._lose = lose

    def replace(self, views: Mapping[str, View]) -> None:
        for key in set(self._known()) - views.keys():
            self._lose(key)
        for view in views.values():
            self._see(view)

    def set(self, key: str, view: View) -> None:
        self._see(view)

    def remove(self, key: str) -> None:
        self._lose(key)


class EventHandlers:
    """Spreads each change to all who need it."""

    def __init__(
        self,
        ledger: GpuLedger,
        jobs: Jobs,
        planner: Planner,
        metrics: ExtenderMetrics,
        touch_gang: Callable[[str], None] = lambda uid: None,
        devices: ClaimedDevices | None = None,
    ) -> None:
        """`touch_gang` is told of which gang that others made something has changed. `devices`: what claims of ours ask for."""
        self._touch_gang = touch_gang
        self._ledger = ledger
        self._monitored = MonitoredGpus(ledger.set_topology)
        self._allocated = AllocatedGpus(ledger.set_allocated, self._monitored.set_lookers)
        self._offered = None if devices is None else OfferedGpus(devices, self._monitored.set_topology)
        self._jobs = jobs
        self._planner = planner
        self._metrics = metrics

    def pods(self) -> KeyedSink[PodView]:
        return KeyedSink(lambda: self._ledger.pods, self.see_pod, self._lose_pod)

    def nodes(self) -> KeyedSink[NodeView]:
        return KeyedSink(lambda: self._ledger.nodes, self._see_node, self._lose_node)

    def topologies(self, forget: Callable[[str], None] = lambda name: None) -> KeyedSink[TopologyView]:
        """`forget` is told names of GPUTopologies that are gone."""

        def lose(name: str) -> None:
            self._lose_topology(name)
            forget(name)

        return KeyedSink(lambda: self._ledger.topologies, self._see_topology, lose)

    def training_jobs(self) -> KeyedSink[JobView]:
        return KeyedSink(lambda: self._known(JobKind.TRAINING_JOB), self._see_job, self._lose_job)

    def gangs(self) -> KeyedSink[JobView]:
        return KeyedSink(lambda: self._known(JobKind.GANG), self._see_gang, self._lose_gang)

    def _known(self, kind: JobKind) -> list[str]:
        return [uid for uid, job in self._jobs.views.items() if job.kind is kind]

    def limits(self) -> KeyedSink[LimitsView]:
        known = self._jobs.limits
        return KeyedSink(lambda: known.limits, self._then_wake(known.set_limits), self._then_wake(known.remove_limits))

    def slices(self) -> KeyedSink[SliceView]:
        of, offered = self._allocated, self._offered

        def see(view: SliceView) -> None:
            of.set_slice(view)
            if offered is not None:
                offered.set_slice(view)

        def lose(name: str) -> None:
            of.remove_slice(name)
            if offered is not None:
                offered.remove_slice(name)

        return KeyedSink(lambda: of.slices, self._then_wake(see), self._then_wake(lose))

    def taint_rules(self) -> KeyedSink[RuleView]:
        """Only where claims are ours to write."""
        of = self._offered
        assert of is not None
        return KeyedSink(lambda: of.rules, self._then_wake(of.set_rule), self._then_wake(of.remove_rule))

    def claims(self) -> KeyedSink[ClaimView]:
        of = self._allocated
        return KeyedSink(lambda: of.claims, self._then_wake(of.set_claim), self._then_wake(of.remove_claim))

    def namespaces(self) -> KeyedSink[NamespaceView]:
        known = self._jobs.limits
        return KeyedSink(lambda: known.labels, self._then_wake(known.set_namespace), self._then_wake(known.remove_namespace))

    def _then_wake(self, act: Callable[[Seen], None]) -> Callable[[Seen], None]:
        def acted(what: Seen) -> None:
            act(what)
            self._planner.wake()

        return acted

    def see_pod(self, pod: PodView) -> None:
        """A pod as it was read or watched."""
        before = self._ledger.pods.get(pod.uid)
        if not self._ledger.set_pod(pod):
            return
        if _corrected(before, pod):
            self._metrics.corrections.inc()
        if before is not None and before.job_uid not in ("", pod.job_uid):  # `kubectl delete --cascade=orphan` took the owner off
            self._jobs.remove_pod(before)
            if before.gang is not None:
                self._touch_gang(before.job_uid)
        if (before is None or before.node is None) and pod.node is not None and pod.gpus and not pod.job_uid:
            self._planner.overtaken_by(pod)
        if pod.gang is not None:
            self._touch_gang(pod.job_uid)
        if pod.job_uid:
            self._jobs.set_pod(pod)
            if pod.node and _refused(pod):
                self._planner.exclude(pod.job_uid, pod.node, pod.reason)
        self._planner.wake()

    def _lose_pod(self, uid: str) -> None:
        pod = self._ledger.pods.get(PodUid(uid))
        self._ledger.remove_pod(PodUid(uid))
        if pod is not None and pod.job_uid:
            self._jobs.remove_pod(pod)
        if pod is not None and pod.gang is not None:
            self._touch_gang(pod.job_uid)
        self._planner.wake()

    def _see_node(self, node: NodeView) -> None:
        self._ledger.set_node(node)
        self._planner.wake()

    def _lose_node(self, name: str) -> None:
        self._ledger.remove_node(NodeName(name))
        self._planner.wake()

    def _see_topology(self, topology: TopologyView) -> None:
        if self._offered is not None:
            self._offered.set_topology(topology)
        else:
            self._ledger.set_topology(topology)
        self._planner.wake()

    def _lose_topology(self, name: str) -> None:
        if self._offered is not None:
            self._offered.remove_topology(name)
        self._monitored.remove_topology(name)
        self._ledger.remove_topology(NodeName(name))
        self._planner.wake()

    def _see_job(self, job: JobView) -> None:
        self._jobs.set_job(job)
        self._planner.wake()

    def _see_gang(self, gang: JobView) -> None:
        before = self._jobs.views.get(gang.uid)
        if before is not None and before.object_uid != gang.object_uid:  # deleted, and made anew
            self._lose_job(gang.uid)
        self._see_job(gang)
        if before is None or before.object_uid != gang.object_uid:
            self._without_forgotten_plan(gang)
        self._touch_gang(gang.uid)

    def _without_forgotten_plan(self, gang: JobView) -> None:
        """What a plan gave to pods counts no longer where no object says so any more."""
        if self._jobs.record(gang).state is not State.RELEASED:
            for pod in self._jobs.pods_of(gang.uid):
                if pod.node is None:
                    self._ledger.withdraw(pod.uid)

    def _lose_gang(self, uid: str) -> None:
        self._lose_job(uid)
        self._touch_gang(uid)

    def _lose_job(self, uid: str) -> None:
        gone = self._jobs.remove_job(uid)
        if gone is not None:
            self._planner.forget(gone)


def _corrected(before: PodView | None, now: PodView) -> bool:
    """Whether the device plugin wrote other GPUs on a bound pod than we had chosen."""
    return (
        before is not None and before.node is not None and bool(before.written_gpus) and before.written_gpus != now.written_gpus
    )


def _refused(pod: PodView) -> bool:
    """Whether kubelet turned the pod away.

    A pod on its way out says nothing about its node: on a machine that comes back, kubelet admits the pods it had before
    the device plugin is there again, and turns them away.
    """
    return pod.phase == "Failed" and not (pod.started or pod.deleting) and pod.reason.startswith(_REJECTED)
