"""Preempts lower-priority gangs: GPUs are reserved first, then the preemptor's status names them, then victims are asked to end.

The order is that of what must be true: a victim's request is derived from what stands written on the job that it is for, so a
new leader goes on where the old one was, and a request whose reason has gone is taken back. The operator acts on requests.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import chain

from kompakt_core.contract.preempt_request import PreemptRequest
from kompakt_core.contract.scheduling_record import Record, State, Victim
from kompakt_core.ids import GpuUuid, JobUid, NodeName, PodUid
from kompakt_core.policy.preempt import PreemptionPlan, RunningGang
from kompakt_extender.gang_state import GangState
from kompakt_extender.gangs import defends_with, preempts_with, running_gang
from kompakt_extender.gangs_of_others import demanding
from kompakt_extender.jobs import Jobs
from kompakt_extender.ledger import GpuLedger
from kompakt_extender.limits_in_force import tenant_of
from kompakt_extender.metrics import ExtenderMetrics
from kompakt_extender.planner.adoption import VictimState, rightful
from kompakt_extender.planner.pending_writes import PendingWrites
from kompakt_extender.planner.plain_pods import PlainPods
from kompakt_extender.planner.planning_request import PlanningRequest
from kompakt_extender.planner.transitions import Transitions
from kompakt_extender.planner.waiting_status import not_waiting_for_level, preempting
from kompakt_extender.views import JobKind, JobView, PodView

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
        plain: PlainPods,
        transitions: Transitions,
    ) -> None:
        self._ledger = ledger
        self._jobs = jobs
        self._writes = writes
        self._metrics = metrics
        self._clock = clock
        self._again = again
        self._plain = plain
        self._transitions = transitions
        self._ends_for: dict[tuple[str, int], str] = {}  # a victim's uid and attempt -> uid of the job it ends for
        self._running: tuple[tuple[int, ...], list[RunningGang]] = (), []  # for versions of ledger, jobs and Limits

    def adopt(self) -> None:
        """Take over what an earlier leader had written, as far as it would be decided again.

        It let go of GPUs before it wrote so, and gave them to others perhaps: what others have, or a
        later decision reserved, is not reserved again.
        """
        running = {one.job_uid: one for one in self._all_running()}
        reserved = [job for job in self._jobs.views.values() if self._reserved(job)]
        found = ((job.uid, self._jobs.record(job)) for job in reserved if self._rightful(job, running))
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

    def _rightful(self, job: JobView, running: Mapping[JobUid, RunningGang]) -> bool:
        record = self._jobs.record(job)
        may = {uid: one for uid, one in running.items() if not self._kept_from(job, one)}
        states = {one: self._victim_state(one, may) for one in record.victims}
        right = rightful(record, self._jobs.members(job), states, self._clock().timestamp())
        if not right:
            _LOG.warning(
                "%s/%s: whom it says that it waits for would not end for it now; not taken over", job.namespace, job.name
            )
        return right

    def _victim_state(self, one: Victim, running: Mapping[JobUid, RunningGang]) -> VictimState:
        job, pods = self._jobs.views.get(one.uid), tuple(self._pods_of(one))
        return VictimState(job, pods, running.get(JobUid(one.uid)))

    def _pods_of(self, victim: Victim) -> Iterable[PodView]:
        """Pods that work for it, of any attempt; a plain pod itself."""
        pod = self._plain.find(victim)
        return self._jobs.pods_of(victim.uid) if victim.attempt else () if pod is None else (pod,)

    def _reserve(self, uid: str, record: Record) -> None:
        gang = self._jobs.states[uid]
        self._transitions.reserve_gpus(gang, dict(record.reserved_gpus), record.victims, self._defends(uid))
        self._ends_for |= {(victim.uid, victim.attempt): uid for victim in record.victims}

    def _defends(self, uid: str) -> int:
        return defends_with(self._jobs.members(self._jobs.views[uid]))

    def running(self, job: JobView, priority: int) -> list[RunningGang]:
        """The gangs of lower priority that could end for this job."""
        lower = self._lower(priority)
        return [one for one in lower if not self._kept_from(job, one)] if self._jobs.limits.limits else lower

    def kept_from(self, job: JobView, priority: int) -> str:
        """Why some gangs of lower priority may not end for this job, though they could; "" where all may."""
        lower = self._lower(priority) if self._jobs.limits.limits else ()
        return next(filter(None, (self._kept_from(job, one) for one in lower)), "")

    def _kept_from(self, job: JobView, one: RunningGang) -> str:
        victim = self._whole(one.job_uid) if one.attempt else self._ledger.pods[PodUid(one.job_uid)]
        return self._jobs.limits.keeps_from(tenant_of(job), tenant_of(victim))

    def _whole(self, uid: str) -> JobView:
        job = self._jobs.views[uid]
        return demanding(job, self._jobs.members(job))

    def _lower(self, priority: int) -> list[RunningGang]:
        """The gangs of lower priority that could end, but those that end already for one that is not below this priority."""
        version = self._ledger.version, self._jobs.preemption_version, self._jobs.limits.version
        if self._running[0] != version:
            self._running = version, self._all_running()
        below = {"", *(uid for uid, _ in self._ledger.reserved.exact_below(priority))}
        left = self._plain.left_alone()
        found = ((one, self._keys(one)) for one in self._running[1] if one.priority < priority)
        free = ((one, keys) for one, keys in found if left.isdisjoint(uid for uid, _ in keys))
        return [one for one, keys in free if all(self._ends_for.get(key, "") in below for key in keys)]

    def _keys(self, one: RunningGang) -> list[tuple[str, int]]:
        """As what it ends: a gang that others made pod by pod, since who is made anew in its place is no victim."""
        pods = self._pods_by_themselves(one)
        return [(pod.uid, 0) for pod in pods] if pods else [(one.job_uid, one.attempt)]

    def _pods_by_themselves(self, one: RunningGang) -> Sequence[PodView]:
        job = self._jobs.views.get(one.job_uid)
        return self._jobs.members(job) if job is not None and job.kind is JobKind.GANG else ()

    def _all_running(self) -> list[RunningGang]:
        graphs = {name: view.graph for name, view in self._ledger.topologies.items() if view.graph is not None}
        found = (
            running_gang(job, self._jobs.record(job), self._jobs.pods_of(job.uid), graphs)
            for job in self._jobs.views.values()
            if self._jobs.record(job).state is State.RELEASED and self._may_end(job)
        )
        return list(map(self._as_limited, chain((one for one in found if one is not None), self._plain.running())))

    def _may_end(self, job: JobView) -> bool:
        """The operator ends a TrainingJob; pods of others are evicted."""
        return job.kind is JobKind.TRAINING_JOB or all(map(self._plain.may_be_evicted, self._jobs.pods_of(job.uid)))

    def _as_limited(self, one: RunningGang) -> RunningGang:
        """Pods of others, which cannot say how long they keep their GPUs from others: no longer than Limits let them."""
        pods = self._pods_by_themselves(one) or ([] if one.attempt else [self._ledger.pods[PodUid(one.job_uid)]])
        if not pods or not self._jobs.limits.limits:
            return one
        asked = one.protected_until - one.since
        longest = self._jobs.limits.longest_run(pods[0], asked)
        return one if longest == asked else replace(one, protected_until=one.since + longest)

    def begin(self, now: PlanningRequest, found: PreemptionPlan) -> None:
        """Reserve the GPUs, and record the victims in the preemptor's status."""
        victims = tuple(victim for one in found.victims for victim in self._victims(one, now.job.namespace))
        record = preempting(now.record, victims, self._uuids(now, found), self._clock())
        _LOG.info("%s/%s: %s", now.job.namespace, now.job.name, record.message)
        self._transitions.unreserve_counts(self._jobs.states[now.job.uid])
        self.take_over(now.asks_with, {uuid for _, uuids in record.reserved_gpus for uuid in uuids}, victims)
        self._reserve(now.job.uid, record)
        self._jobs.decide(now.job, record)
        self._writes.status(now.job, record)

    def _victims(self, one: RunningGang, namespace: str) -> list[Victim]:
        if pods := self._pods_by_themselves(one):
            return [Victim(*_names(pod, namespace), pod.uid, 0, one.priority) for pod in pods]
        found = self._jobs.views[one.job_uid] if one.attempt else self._ledger.pods[PodUid(one.job_uid)]
        return [Victim(*_names(found, namespace), one.job_uid, one.attempt, one.priority)]

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
        gang = self._jobs.states[job.uid]
        if not gang.victims:
            return
        if not (waits and record.victims):
            self.unreserve(gang)
            return
        for victim in record.victims:
            view, pod = self._jobs.views.get(victim.uid), self._plain.find(victim)
            if pod is not None:
                self._evict(job, victim, pod)
            elif view is not None and not self._writes.resting(victim.uid):
                self.write_request(view, self._jobs.record(view))

    def _evict(self, waiting: JobView, victim: Victim, pod: PodView) -> None:
        """Once it stands written on the waiting job, as with requests."""
        record = None if self._writes.resting(waiting.uid) else self._jobs.written(waiting)
        ends_for = self._ends_for.get(victim.key)
        if record is not None and record.attempt == waiting.attempt and victim in record.victims and ends_for == waiting.uid:
            request = self._request(0, waiting, record, victim, pod.namespace)
            if request is not None:
                self._plain.evict(pod, request, lambda: self._refused(waiting.uid))

    def _refused(self, uid: str) -> None:
        """A budget keeps a victim of this job: it is planned anew, without that victim."""
        if uid in self._jobs.states and self._jobs.states[uid].victims:
            self.give_up(uid)

    def take_over(self, priority: int, gpus: Collection[GpuUuid], victims: Collection[Victim] = ()) -> None:
        """Jobs below that priority that some of these GPUs are reserved for, or a victim ends for, are planned anew."""
        ended = {one.key for one in victims}  # their names differ with the namespace of the job that they end for
        for uid, reserved in tuple(self._ledger.reserved.exact_below(priority)):
            theirs = {uuid for uuids in reserved.values() for uuid in uuids}
            if not theirs.isdisjoint(gpus) or any(one.key in ended for one in self._jobs.states[uid].victims):
                self.give_up(uid)

    def give_up(self, uid: str) -> None:
        """A gang that waits for its victims does so no longer."""
        self.unreserve(self._jobs.states[uid])
        self._jobs.change(self._jobs.views[uid], _without_victims)

    def unreserve(self, gang: GangState) -> None:
        """Nothing is reserved for this job any longer; who was asked to end for it and has not yet is told to go on."""
        for victim in self._transitions.unreserve_gpus(gang):
            if self._ends_for.get((victim.uid, victim.attempt)) == gang.uid:
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
        return None if victim is None else self._request(job.attempt, waiting, record, victim, job.namespace)

    def _request(self, attempt: int, waiting: JobView, record: Record, victim: Victim, namespace: str) -> PreemptRequest | None:
        """For the eyes of that namespace; None where what waits may have nobody ended any more."""
        priority = preempts_with(self._jobs.members(waiting))
        if priority is None:
            return None
        names = _names(waiting, namespace)
        return PreemptRequest(attempt, record.decided_at, *names, waiting.written_uid, priority, victim.priority)

    def goes_on(self, now: PlanningRequest) -> bool:
        """Whether the GPUs reserved for a gang still become free: none was lost to others, and somebody is still to end."""
        if not self._jobs.states[now.job.uid].victims or self._lost(now.job.uid, now.record):
            return False
        waits = any(self._of_attempt(pod, one) for one in now.record.victims for pod in self._pods_of(one) if not pod.finished)
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
            not set(gpus).isdisjoint(uuids)
            and pod.job_uid != uid
            and not any(self._of_attempt(pod, one) for one in record.victims)
            for node, uuids in record.reserved_gpus
            for pod, gpus in self._ledger.users_of(node)
        )

    def _of_attempt(self, pod: PodView, victim: Victim) -> bool:
        """Whether the pod works for it. Of a victim in another namespace only its job says which one that is."""
        if not victim.attempt:
            return pod.uid == victim.uid
        job = self._jobs.views.get(victim.uid)
        namespace = victim.namespace or (pod.namespace if job is None else job.namespace)
        return (pod.namespace, pod.job_uid, pod.attempt) == (namespace, *victim.key)


def _without_victims(record: Record) -> Record:
    return replace(not_waiting_for_level(record), state=State.WAITING) if record.victims else record


def _names(job: JobView | PodView, namespace: str) -> tuple[str, str]:
    """Of a job or plain pod, on a job of that namespace: nothing where it is another one."""
    return (job.namespace, job.name) if job.namespace == namespace else ("", "")
