"""What goes on for a gang before a cycle plans anything: reservations that fall, requests to victims, releases, withdrawals."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime

from kompakt_core.contract import timestamps
from kompakt_core.contract.scheduling_record import Record, State
from kompakt_extender.gang_state import GangState
from kompakt_extender.gangs import plannable, replannable
from kompakt_extender.gangs_of_others import incomplete_message, is_made_anew
from kompakt_extender.jobs import Jobs
from kompakt_extender.ledger import GpuLedger
from kompakt_extender.planner.pending_writes import PendingWrites
from kompakt_extender.planner.preemption import PreemptionPlanner
from kompakt_extender.planner.released_gangs import ReleasedGangs
from kompakt_extender.planner.reserved_places import ReservedPlaces
from kompakt_extender.planner.transitions import Transitions
from kompakt_extender.planner.waiting_status import INCOMPLETE, not_waiting_for_level
from kompakt_extender.views import JobKind, JobView, PodView


class Reconciliation:
    """Of one gang at a time, none of which is being written about."""

    def __init__(
        self,
        ledger: GpuLedger,
        jobs: Jobs,
        writes: PendingWrites,
        released: ReleasedGangs,
        places: ReservedPlaces,
        preempting: PreemptionPlanner,
        transitions: Transitions,
        clock: Callable[[], datetime],
    ) -> None:
        self._ledger = ledger
        self._jobs = jobs
        self._writes = writes
        self._released = released
        self._places = places
        self._preempting = preempting
        self._transitions = transitions
        self._clock = clock

    def reconcile(self, uid: str) -> None:
        """Go on with what is under way for this gang."""
        gang = self._jobs.states[uid]
        self._reconcile(self._jobs.views[uid], gang)
        gang.reconciled = self._jobs.touches

    def _reconcile(self, job: JobView, gang: GangState) -> None:
        self._writes.drop_unwritten(gang)
        gang.shown = ()
        record, pods = gang.record, self._jobs.members(job)
        complete = plannable(job, pods) or replannable(job, pods)
        if job.uid == self._ledger.reserved.counts_for and not complete:
            self._transitions.unreserve_counts(gang)
        goes_on = job.ours and not (job.suspended or job.finished) and record.attempt == job.attempt
        if self._places.settle(job, gang, pods, goes_on=goes_on):
            return
        record = gang.record
        self._preempting.settle(job, record, waits=goes_on and complete)
        if self._preempting.write_request(job, record):
            return
        if not job.ours or job.suspended or job.finished or job.attempt == 0:
            self._jobs.rest(job.uid)
            return
        if record.attempt != job.attempt or is_made_anew(job, record, pods):
            record, gang.newcomers = self._jobs.fresh(job, record), ()
            self._transitions.start(gang)
        if record.state is State.RELEASED:
            self._released.reconcile(job, record, pods)
        elif record.state is State.WITHDRAWN:
            self._released.reconcile_withdrawn(job, record, pods)
        elif complete and not record.waiting_since:
            self._jobs.complete(job, record, timestamps.encode(self._clock()))
        elif job.kind is JobKind.GANG and not complete:
            self._await_pods(job, record, pods)

    def _await_pods(self, job: JobView, record: Record, pods: Sequence[PodView]) -> None:
        """Say why a gang that others made cannot be planned: nobody else tells its owner."""
        message = incomplete_message(job, pods)
        waiting = replace(not_waiting_for_level(record), state=State.WAITING, reason=INCOMPLETE, message=message, plan=None)
        if pods and waiting != self._jobs.written(job):
            self._writes.status(job, waiting)
        self._jobs.rest(job.uid)
