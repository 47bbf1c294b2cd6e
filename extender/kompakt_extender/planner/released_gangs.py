"""Gangs that were released already: their release is finished as written, or their plan is taken back as a whole."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from kompakt_core.contract import timestamps
from kompakt_core.contract.plan_record import PlanRecord, SeatRecord
from kompakt_core.contract.scheduling_record import Record, State
from kompakt_core.ids import NodeName
from kompakt_extender.gang_state import Unbound
from kompakt_extender.gangs import defends_with, placed_message
from kompakt_extender.gangs_of_others import incomplete_message
from kompakt_extender.jobs import Jobs
from kompakt_extender.ledger import GpuLedger
from kompakt_extender.metrics import ExtenderMetrics
from kompakt_extender.node_state import ClaimSource
from kompakt_extender.planner.given_gpus import given_gpus
from kompakt_extender.planner.newcomers import PODS_WAIT, Newcomers, without
from kompakt_extender.planner.pending_writes import CLAIM_REFUSED, PendingWrites
from kompakt_extender.planner.plan_lookup import is_known, looked_up
from kompakt_extender.planner.transitions import Transitions
from kompakt_extender.record import uuids_of
from kompakt_extender.views import JobKind, JobView, PodView

_LOG = logging.getLogger(__name__)
WITHDRAW_SECONDS = 120.0  # a gang not bound that long after its release gives its places back
WITHDRAW_VOLUMES_SECONDS = 600.0  # if a pod mounts a claim: kube-scheduler itself waits so long for a volume (bindTimeoutSeconds)
EXCLUDE_SECONDS = 600.0  # a node that refused a gang is left out for so long


class ReleasedGangs:
    """Looks after plans that stand. Patience counts from when this process first saw a plan unbound, by a steady clock."""

    def __init__(
        self,
        ledger: GpuLedger,
        jobs: Jobs,
        writes: PendingWrites,
        metrics: ExtenderMetrics,
        clock: Callable[[], datetime],
        steady: Callable[[], float],
        transitions: Transitions,
    ) -> None:
        self._ledger = ledger
        self._jobs = jobs
        self._writes = writes
        self._metrics = metrics
        self._clock = clock
        self._steady = steady
        self._transitions = transitions
        self._newcomers = Newcomers(steady)

    def adopt(self) -> None:
        """Take over what an earlier leader decided: its plans hold GPUs, its reservations stay, its withdrawn plans hold none.

        What is planned on pods of an attempt that has ended holds GPUs until these pods are gone, as it did before.
        """
        for job in self._jobs.views.values():
            record = self._jobs.record(job)
            stands = record.state is State.RELEASED and record.attempt == job.attempt
            plan = self._looked_up(job, record.plan) if stands and record.plan is not None else None
            places = {seat.uid: seat for seat in plan.pods if is_known(seat)} if plan else {}
            for pod in self._jobs.pods_of(job.uid):
                if pod.uid in places and pod.node is None and not pod.finished:
                    self._ledger.claim(ClaimSource.PLAN, pod, places[pod.uid].node, places[pod.uid].gpus)
                elif pod.node is None and pod.attempt == job.attempt:
                    self._ledger.withdraw(pod.uid)
        self._adopt_counts()

    def _looked_up(self, job: JobView, plan: PlanRecord) -> PlanRecord:
        found = looked_up(plan, self._jobs.pods_of(job.uid), self._ledger.topologies)
        if found is not plan:
            self._jobs.look_up(job, found)
        return found

    def _adopt_counts(self) -> None:
        """Counts are reserved for one gang at a time; what stands written on others is older, and not yet written over."""
        records = [(self._jobs.record(job), job) for job in self._jobs.views.values()]
        reserved = [
            (record, job)
            for record, job in records
            if record.state is State.RESERVED and record.attempt == job.attempt and record.reserved_counts
        ]
        if reserved:
            record, job = max(reserved, key=lambda one: (one[0].until, one[1].uid))
            priority = defends_with(self._jobs.members(job))
            self._transitions.reserve_counts(self._jobs.states[job.uid], dict(record.reserved_counts), priority)

    def reconcile(self, job: JobView, record: Record, pods: Sequence[PodView]) -> None:
        """A released gang: finish its release as written, or take the plan back when it stays unbound."""
        if record.plan is None:
            return
        planned = {seat.uid for seat in record.plan.pods}
        unbound = [pod for pod in pods if pod.node is None and pod.uid in planned]
        self._jobs.states[job.uid].newcomers = ()
        if unbound:
            places = {seat.uid: seat for seat in self._looked_up(job, record.plan).pods}
            self._finish(job, self._jobs.record(job), [(pod, places[pod.uid]) for pod in unbound])
            return
        if self._note(job, record.plan, [pod for pod in pods if pod.unnoted]):
            return
        gang = self._jobs.states[job.uid]
        gang.unbound = None
        awaited = self._newcomers.note(gang, job, record, pods)
        if not awaited and (len(pods) == job.workers or job.kind is JobKind.GANG):
            self._jobs.rest(job.uid)
            self._tell_of_surplus(job, record, pods)

    def _tell_of_surplus(self, job: JobView, record: Record, pods: Sequence[PodView]) -> None:
        """Pods beyond the size of a gang that others made get no place. What was said of pods that waited holds no longer."""
        if record.plan is None:
            return
        if len(pods) > job.workers:
            told = replace(record, reason=PODS_WAIT, message=incomplete_message(job, pods))
        elif record.reason == PODS_WAIT:
            told = replace(record, reason="Released", message=placed_message(record.plan))
        else:
            return
        if told != self._jobs.written(job):
            self._writes.status(job, told)

    def _note(self, job: JobView, plan: PlanRecord, pods: Sequence[PodView]) -> bool:
        """Which GPUs they have stands on pods that another scheduler has bound once we write it there; False where all does.

        A claim that is not seen allocated yet is waited for.
        """
        seats = {seat.uid: seat for seat in self._looked_up(job, plan).pods if is_known(seat)} if pods else {}
        found = [(pod, given_gpus(pod, seats[pod.uid], self._ledger)) for pod in pods if pod.uid in seats]
        known = [(pod, gpus) for pod, gpus in found if gpus is not None]
        if known:
            self._writes.note(job, known)
        return bool(found)

    def _finish(self, job: JobView, record: Record, unbound: Sequence[tuple[PodView, SeatRecord]]) -> None:
        """Bring it to an end for these pods."""
        pods = [pod for pod, _ in unbound]
        if not all(is_known(seat) for _, seat in unbound):
            self._withdraw(job, record, "a node has other GPUs than were planned", pods, [])
            return
        assert record.plan is not None
        if lost := next(filter(None, (self._ledger.lost(pod.uid, seat.node, seat.gpus) for pod, seat in unbound)), ""):
            self._withdraw(job, record, lost, pods, [])
            return
        patience = WITHDRAW_VOLUMES_SECONDS if any(pod.mounts_claims for pod in pods) else WITHDRAW_SECONDS
        late = self._steady() - self._unbound_since(job.uid, record.plan.released_at) >= patience
        refused = record.message if record.reason == CLAIM_REFUSED else ""
        # One that was released before has no gate, and what an earlier plan wrote on it until the new one reaches it.
        unfinished = [pod for pod in pods if pod.gated or not self._jobs.released(pod)]
        if unfinished and not (refused and late):
            self._writes.finish_release(job, record, unfinished)
        elif late:
            message = refused or f"not bound within {patience:.0f} s after the release"
            if len(unbound) < len(record.plan.pods) and job.kind is JobKind.GANG:
                self._take_back(job, record, message, unbound)
            else:
                self._withdraw(job, record, message, pods, [seat.node for _, seat in unbound])

    def _take_back(self, job: JobView, record: Record, message: str, unbound: Sequence[tuple[PodView, SeatRecord]]) -> None:
        """The others run and nobody makes them anew together: these alone lose their places, and are planned once more."""
        assert record.plan is not None
        nodes, seats = [seat.node for _, seat in unbound], [seat for _, seat in unbound]
        gpus = {name: uuids_of(one.graph) for name, one in self._ledger.topologies.items()}
        until = timestamps.encode(self._clock() + timedelta(seconds=EXCLUDE_SECONDS))
        left = replace(record.excluding(nodes, until, "NotBound"), message=message, plan=without(record.plan, seats, gpus))
        _LOG.warning("%s/%s: %d places taken back, %s", job.namespace, job.name, len(seats), message)
        self._metrics.withdrawals.inc()
        self._jobs.decide(job, left)
        for pod, _ in unbound:
            self._ledger.withdraw(pod.uid)
        self._writes.withdraw(job, left, [pod for pod, _ in unbound])

    def _unbound_since(self, job_uid: str, released_at: str) -> float:
        """When this plan was first seen unbound."""
        gang = self._jobs.states[job_uid]
        if gang.unbound is None or gang.unbound.released_at != released_at:
            gang.unbound = Unbound(released_at, self._steady())
        return gang.unbound.since

    def be_patient_anew(self) -> None:
        """Every plan that is unbound now has all its time before it, and so have places of pods that do not exist yet."""
        for gang in self._jobs.states.values():
            gang.unbound = gang.awaited = None

    def _withdraw(self, job: JobView, record: Record, message: str, unbound: Sequence[PodView], nodes: list[NodeName]) -> None:
        until = timestamps.encode(self._clock() + timedelta(seconds=EXCLUDE_SECONDS))
        withdrawn = replace(
            record.excluding(nodes, until, "NotBound"), state=State.WITHDRAWN, reason="Withdrawn", message=message
        )
        _LOG.warning("%s/%s: plan withdrawn, %s", job.namespace, job.name, message)
        self._metrics.withdrawals.inc()
        self._jobs.decide(job, withdrawn)  # from here on bind refuses this plan
        self._transitions.withdraw(self._jobs.states[job.uid], unbound)
        self._writes.withdraw(job, withdrawn, unbound)

    def reconcile_withdrawn(self, job: JobView, record: Record, pods: Sequence[PodView]) -> None:
        """All bound meanwhile: revoked. None bound: it is nominated. Some bound: the operator makes the next attempt."""
        if record != self._jobs.written(job):
            self._writes.status(job, record)
        elif not self._ledger.binds_any(pods) and len(pods) == job.workers and all(pod.node for pod in pods):
            self._writes.status(job, replace(record, state=State.RELEASED, reason="Released", message="bound after all"))

    def exclude(self, job_uid: str, node: NodeName, reason: str) -> None:
        """A node failed a pod of this job before any container started: leave it out of the next plans."""
        job = self._jobs.views.get(job_uid)
        if job is not None:
            until = timestamps.encode(self._clock() + timedelta(seconds=EXCLUDE_SECONDS))
            self._jobs.change(job, lambda record: record.excluding([node], until, reason))
