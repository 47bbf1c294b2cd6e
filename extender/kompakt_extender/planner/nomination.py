"""Step 2 of a cycle, nominate: which gangs wait for places; and what core is asked about one, as values, when its turn comes.

Core is asked only if something has changed that the gang's last result depends on. A gang that no cluster could take, or that
Limits keep out, is told so without asking.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from kompakt_core.contract import timestamps
from kompakt_core.contract.plan_record import SeatRecord
from kompakt_core.contract.scheduling_record import PODS_NOT_CREATED, Record, State
from kompakt_core.errors import InvalidInput
from kompakt_core.placement.model import Gang, Reason, Snapshot
from kompakt_extender.cluster_view import may_hold
from kompakt_extender.consolidation import ClusterPolicy, patience_of
from kompakt_extender.gang_state import AttemptResult, SeenVersions
from kompakt_extender.gangs import asks_with, gang_of, preempts_with, replannable
from kompakt_extender.gangs_of_others import demanding
from kompakt_extender.jobs import Jobs
from kompakt_extender.ledger import GpuLedger
from kompakt_extender.planner.cycle import PlanningCycle, SeenNodes
from kompakt_extender.planner.newcomers import staying
from kompakt_extender.planner.planning_request import PlanningRequest, can_be_planned
from kompakt_extender.planner.waiting_status import BEYOND_LIMITS
from kompakt_extender.views import JobView, PodView


class Unplannable(NamedTuple):
    """A gang that core need not be asked about: why, for its status."""

    job: JobView
    record: Record
    reason: str
    message: str
    mark: SeenVersions


class _Turn(NamedTuple):
    """A gang that can be planned: what is known of it, and what it may see."""

    job: JobView
    record: Record
    pods: Sequence[PodView]
    seen: SeenNodes
    mark: SeenVersions


_UNSEEN: Final = SeenNodes(Snapshot({}), 0, 0, as_all=True)


class Nomination:
    """Reads jobs and ledger; changes nothing."""

    def __init__(self, ledger: GpuLedger, jobs: Jobs, policy: ClusterPolicy) -> None:
        self._ledger = ledger
        self._jobs = jobs
        self._policy = policy

    def waits(self, uid: str) -> bool:
        """Whether the gang is whole and holds no plan; one whose plan was withdrawn waits once no bind is under way."""
        job = self._jobs.views[uid]
        record, pods = self._jobs.record(job), self._jobs.members(job)
        if record.state is State.RELEASED:
            return bool(self._newcomers(job, pods))
        if not job.ours or job.attempt == 0 or self._jobs.states[uid].places:
            return False
        if record.reason == PODS_NOT_CREATED and not all(pod.exists for pod in pods):
            return False
        if record.state is State.WITHDRAWN:
            return replannable(job, pods) and not self._ledger.binds_any(pods)
        return can_be_planned(job, record, pods)

    def was_overtaken_often(self, uid: str) -> bool:
        """Whether GPUs are to be reserved for it, once they are for no other gang."""
        return self._jobs.states[uid].record.overtaken >= self._policy.overtaken_at_most

    def next_request(self, uid: str, cycle: PlanningCycle) -> PlanningRequest | Unplannable | None:
        """What to plan for one gang; None where nothing has changed since it was last rejected, and no timer has run out."""
        tried = self._jobs.states[uid].result
        if tried is not None and self._has_no_room(uid, tried):
            return None
        turn = self._turn(uid, cycle)
        if turn is None or (tried is not None and self._stands(tried, turn, cycle)):
            return None
        return self._request(turn, cycle)

    def _has_no_room(self, uid: str, tried: AttemptResult) -> bool:
        """Told before anything is made of the nodes: in a backlog it holds for nearly all, in each cycle."""
        job = self._jobs.views[uid]
        record = self._jobs.record(job)
        return not record.excluded and self._lacks_room(tried, self._mark(job, record, _UNSEEN), self._jobs.members(job))

    def _lacks_room(self, tried: AttemptResult, mark: SeenVersions, pods: Sequence[PodView]) -> bool:
        return tried.stands_but_for_room(mark) and not (
            self._may_end_others(pods) or may_hold(self._ledger.cluster_view().free, [pod.gpus for pod in pods])
        )

    def _stands(self, tried: AttemptResult, turn: _Turn, cycle: PlanningCycle) -> bool:
        return tried.stands(turn.mark, cycle.began.timestamp()) or self._lacks_room(tried, turn.mark, turn.pods)

    def _may_end_others(self, pods: Sequence[PodView]) -> bool:
        """Whether there is any pod of lower priority, if that is of use to this gang."""
        priority = self._priority(pods)
        return priority is not None and self._ledger.any_below(priority)

    def _priority(self, pods: Sequence[PodView]) -> int | None:
        """As PlanningRequest.priority."""
        return preempts_with(pods) if self._policy.preemption else None

    def current_request(self, uid: str, cycle: PlanningCycle) -> PlanningRequest | Unplannable | None:
        """The request as it stands now; None where there is nothing to plan."""
        turn = self._turn(uid, cycle)
        return None if turn is None else self._request(turn, cycle)

    def _turn(self, uid: str, cycle: PlanningCycle) -> _Turn | None:
        job = self._jobs.views[uid]
        record, pods = self._jobs.record(job).without_expired(cycle.began), self._jobs.members(job)
        if record.state is State.RELEASED:
            pods = self._newcomers(job, pods)
        if not ((pods and record.state is State.RELEASED) or can_be_planned(job, record, pods)):
            return None
        seen = cycle.snapshot_for(uid, asks_with(pods))
        return _Turn(demanding(job, pods), record, pods, seen, self._mark(job, record, seen))

    def _newcomers(self, job: JobView, pods: Sequence[PodView]) -> Sequence[PodView]:
        """Those that are planned beside the others; none unless all of them are there still."""
        wanted = self._jobs.states[job.uid].newcomers
        found = [pod for pod in pods if pod.uid in wanted and pod.node is None]
        return found if len(found) == len(wanted) else ()

    def _mark(self, job: JobView, record: Record, seen: SeenNodes) -> SeenVersions:
        known = self._jobs
        return SeenVersions(
            seen.version,
            seen.freed,
            self._ledger.machines_version,
            f"{job.resource_version}/{known.asked(job.uid)}",
            len(record.excluded),
            known.preemption_version,
            known.limits.version,
            self._overtaken(job, record) >= self._policy.overtaken_at_most,
        )

    def _overtaken(self, job: JobView, record: Record) -> int:
        """As it counts now: GPUs are reserved by count for one gang at a time."""
        return record.overtaken if self._ledger.reserved.counts_for in ("", job.uid) else 0

    def _request(self, turn: _Turn, cycle: PlanningCycle) -> PlanningRequest | Unplannable:
        job, record, pods, _, mark = turn
        if more := self._jobs.limits.beyond(job):
            return Unplannable(job, record, BEYOND_LIMITS, more, mark)
        try:
            gang = gang_of(job, pods, record, cycle.began)
        except InvalidInput as error:
            return Unplannable(job, record, Reason.INVALID_REQUEST.value, str(error), mark)
        return self._planning_request(turn, gang, cycle)

    def _planning_request(self, turn: _Turn, gang: Gang, cycle: PlanningCycle) -> PlanningRequest:
        (job, record, pods, seen, mark), now = turn, cycle.began
        beside = self._beside(job, record)
        return PlanningRequest(
            job,
            record,
            tuple(pods),
            gang,
            seen.snapshot,
            mark,
            patience_of(job.consolidation, self._policy, pods, job.communication, job.remaining_s),
            since=timestamps.decode(record.placeable_since or timestamps.encode(now)).timestamp(),
            asked_at=now.timestamp(),
            overtaken=self._overtaken(job, record),
            asks_with=asks_with(pods),
            priority=None if beside else self._priority(pods),
            sees_as_all=seen.as_all,
            beside=beside,
        )

    def _beside(self, job: JobView, record: Record) -> tuple[SeatRecord, ...]:
        return staying(record, self._jobs.members(job), self._jobs.states[job.uid].newcomers)
