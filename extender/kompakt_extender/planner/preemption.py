"""Preempts lower-priority gangs: GPUs are reserved first, then the preemptor's status names them, then victims are asked to end.

The order is that of what must be true: a victim's request is derived from what stands written on the job that it is for, so a
new leader goes on where the old one was, and a request whose reason has gone is taken back. The operator acts on requests.
"""

import logging
from collections.abc import Callable, Collection
from dataclasses import replace
from datetime import datetime

from kompakt_core.contract.preempt_request import PreemptRequest
from kompakt_core.contract.scheduling_record import Record, State, Victim
from kompakt_core.ids import GpuUuid, NodeName
from kompakt_core.policy.preempt import PreemptionPlan, RunningGang
from kompakt_extender.gangs import defends_with, preempts_with, running_gang
from kompakt_extender.jobs import Jobs
from kompakt_extender.ledger import GpuLedger
from kompakt_extender.metrics import ExtenderMetrics
from kompakt_extender.planner.pending_writes import PendingWrites
from kompakt_extender.planner.planning_request import PlanningRequest
from kompakt_extender.planner.waiting_status import not_waiting_for_level, preempting
from kompakt_extender.views import JobView, PodView

_LOG = logging.getLogger(__name__)


class PreemptionPlanner:
    """Knows who ends for whom. `again` asks for another cycle."""

    def __init__(
        self,
        ledger: GpuLedger,
        jobs: Jobs,
        writes: PendingWrites,
        metrics: ExtenderMetrics,
        clock: Callable[[], datetime],
        again: Callable[[], None],
    ) -> None:
        self._ledger = ledger
        self._jobs = jobs
        self._writes = writes
        self._metrics = metrics
        self._clock = clock
        self._again = again
        self._ends_for: dict[tuple[str, int], str] = {}  # a victim's uid and attempt -> uid of the job it ends for
        self._victims_of: dict[str, tuple[Victim, ...]] = {}  # by uid of a job with reserved GPUs
        self._running: tuple[tuple[int, int], list[RunningGang]] = (-1, -1), []  # for versions of ledger and jobs

    def adopt(self) -> None:
        """Take over what an earlier leader had written.

        It let go of GPUs before it wrote so, and gave them to others perhaps: what others have, or a
        later decision reserved, is not reserved again.
        """
        found = ((job.uid, self._jobs.record(job)) for job in self._jobs.views.values() if self._reserved(job))
        again: set[GpuUuid] = set()
        for uid, record in sorted(found, key=lambda one: (one[1].decided_at, self._defends(one[0]), one[0]), reverse=True):
            gpus = {uuid for _, uuids in record.reserved_gpus for uuid in uuids}
            ending = any((one.uid, one.attempt) in self._ends_for for one in record.victims)
            if again.isdisjoint(gpus) and not ending and not self._lost(uid, record):
                self._reserve(uid, record)
                again |= gpus

    def _reserved(self, job: JobView) -> bool:
        record = self._jobs.record(job)
        return record.state is State.RESERVED and record.attempt == job.attempt and bool(record.victims)

    def _reserve(self, uid: str, record: Record) -> None:
        self._ledger.reserve_gpus(uid, dict(record.reserved_gpus), self._defends(uid))
        self._victims_of[uid] = record.victims
        self._ends_for |= {(victim.uid, victim.attempt): uid for victim in record.victims}

    def _defends(self, uid: str) -> int:
        return defends_with(self._jobs.pods_of(uid))

    def running(self, priority: int) -> list[RunningGang]:
        """The gangs of lower priority that could end, but those that end already for one that is not below this priority."""
        version = self._ledger.version, self._jobs.preemption_version
        if self._running[0] != version:
            self._running = version, self._all_running()
        below = {"", *(uid for uid, _ in self._ledger.reserved.exact_below(priority))}
        found = (one for one in self._running[1] if one.priority < priority)
        return [one for one in found if self._ends_for.get((one.job_uid, one.attempt), "") in below]

    def _all_running(self) -> list[RunningGang]:
        graphs = {name: view.graph for name, view in self._ledger.topologies.items() if view.graph is not None}
        found = (
            running_gang(job, self._jobs.record(job), self._jobs.pods_of(job.uid), graphs)
            for job in self._jobs.views.values()
            if self._jobs.record(job).state is State.RELEASED
        )
        return [one for one in found if one is not None]

    def begin(self, now: PlanningRequest, found: PreemptionPlan) -> None:
        """Reserve the GPUs, and record the victims in the preemptor's status."""
        victims = tuple(self._victim(one) for one in found.victims)
        record = preempting(now.record, victims, self._uuids(now, found), self._clock())
        _LOG.info("%s/%s: %s", now.job.namespace, now.job.name, record.message)
        self._ledger.unreserve_counts(now.job.uid)
        self.take_over(now.asks_with, {uuid for _, uuids in record.reserved_gpus for uuid in uuids}, victims)
        self._reserve(now.job.uid, record)
        self._jobs.decide(now.job, record)
        self._writes.status(now.job, record)

    def _victim(self, one: RunningGang) -> Victim:
        job = self._jobs.views[one.job_uid]
        return Victim(job.namespace, job.name, job.uid, one.attempt, one.priority)

    @staticmethod
    def _uuids(now: PlanningRequest, found: PreemptionPlan) -> dict[NodeName, tuple[GpuUuid, ...]]:
        reserved: dict[NodeName, list[GpuUuid]] = {}
        for seat in found.plan.seats:
            graph = now.snapshot.nodes[seat.node].graph
            if graph is not None and seat.gpus:
                reserved.setdefault(seat.node, []).extend(graph.gpus[i].uuid for i in seat.gpus)
        return {node: tuple(uuids) for node, uuids in reserved.items()}

    def settle(self, job: JobView, record: Record, *, waits: bool) -> None:
        """A job that waits for victims asks them; what was reserved for one that does not is dropped."""
        if job.uid not in self._victims_of:
            return
        if not (waits and record.victims):
            self.unreserve(job.uid)
            return
        for victim in record.victims:
            view = self._jobs.views.get(victim.uid)
            if view is not None and not self._writes.resting(victim.uid):
                self.write_request(view, self._jobs.record(view))

    def take_over(self, priority: int, gpus: Collection[GpuUuid], victims: Collection[Victim] = ()) -> None:
        """Jobs below that priority that some of these GPUs are reserved for, or a victim ends for, are planned anew."""
        for uid, reserved in tuple(self._ledger.reserved.exact_below(priority)):
            theirs = {uuid for uuids in reserved.values() for uuid in uuids}
            if not theirs.isdisjoint(gpus) or any(one in victims for one in self._victims_of[uid]):
                self.give_up(uid)

    def give_up(self, uid: str) -> None:
        """A gang that waits for its victims does so no longer."""
        self.unreserve(uid)
        self._jobs.change(self._jobs.views[uid], _without_victims)

    def unreserve(self, uid: str) -> None:
        """Nothing is reserved for this job any longer; who was asked to end for it and has not yet is told to go on."""
        self._ledger.unreserve_gpus(uid)
        for victim in self._victims_of.pop(uid, ()):
            if self._ends_for.get((victim.uid, victim.attempt)) == uid:
                del self._ends_for[victim.uid, victim.attempt]
            self._jobs.touch(victim.uid)
            self._again()

    def write_request(self, job: JobView, record: Record) -> bool:
        """Ask a job to end, or take that back; answers whether a write was begun."""
        if record.attempt != job.attempt:
            return False  # its next attempt begins without a request
        wanted = None if job.finished or job.suspended else self._wanted(job, record)
        if record.preempt == wanted:
            return False
        if wanted is not None:
            self._metrics.preemptions.inc()
            _LOG.info("%s/%s attempt %d is asked to end %s", job.namespace, job.name, job.attempt, wanted.message)
        self._writes.status(job, replace(record, preempt=wanted))
        return True

    def _wanted(self, job: JobView, known: Record) -> PreemptRequest | None:
        """The request as it follows from what is written on the job that it is for; as it is while that is being written."""
        waiting = self._jobs.views.get(self._ends_for.get((job.uid, job.attempt), ""))
        if waiting is not None and self._writes.resting(waiting.uid):
            return known.preempt
        record = None if waiting is None else self._jobs.written(waiting)
        if waiting is None or record is None or record.attempt != waiting.attempt or waiting.suspended or waiting.finished:
            return None
        victim = next((one for one in record.victims if (one.uid, one.attempt) == (job.uid, job.attempt)), None)
        priority = preempts_with([pod for pod in self._jobs.pods_of(waiting.uid) if not pod.finished])
        if victim is None or priority is None:
            return None
        return PreemptRequest(
            job.attempt, record.decided_at, waiting.namespace, waiting.name, waiting.uid, priority, victim.priority
        )

    def goes_on(self, now: PlanningRequest) -> bool:
        """Whether the GPUs reserved for a gang still become free: none was lost to others, and somebody is still to end."""
        if now.job.uid not in self._victims_of or self._lost(now.job.uid, now.record):
            return False
        waits = any(
            _of_attempt(pod, one) for one in now.record.victims for pod in self._jobs.pods_of(one.uid) if not pod.finished
        )
        for node, uuids in now.record.reserved_gpus:
            state = now.snapshot.nodes.get(node)
            if state is None or state.graph is None or not state.ready:
                return False
            index = {gpu.uuid: gpu for gpu in state.graph.gpus}
            if any(uuid not in index or index[uuid].health != "Healthy" for uuid in uuids):
                return False
            waits = waits or any(not state.free >> index[uuid].index & 1 for uuid in uuids)
        return waits

    def _lost(self, uid: str, record: Record) -> bool:
        """Whether somebody has one of these GPUs, or is about to, who will not end for this job."""
        return any(
            not set(gpus).isdisjoint(uuids) and pod.job_uid != uid and not any(_of_attempt(pod, one) for one in record.victims)
            for node, uuids in record.reserved_gpus
            for pod, gpus in self._ledger.users_of(node)
        )


def _without_victims(record: Record) -> Record:
    return replace(not_waiting_for_level(record), state=State.WAITING) if record.victims else record


def _of_attempt(pod: PodView, victim: Victim) -> bool:
    return pod.job_uid == victim.uid and pod.attempt == victim.attempt
