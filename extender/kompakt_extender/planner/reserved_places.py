"""Places that are kept for pods which do not exist yet: the operator creates them once their places stand in the job's status.

They are given back where the pods do not come, cannot be created, or come out otherwise than the API server had said.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final

from kompakt_core.contract import INPUT_ANNOTATIONS, timestamps
from kompakt_core.contract.plan_record import PlanRecord
from kompakt_core.contract.scheduling_record import PODS_NOT_CREATED, Record, State
from kompakt_core.ids import GpuIndex, NodeName, PodUid, mask_of
from kompakt_extender import node_rules
from kompakt_extender.gang_state import Awaited, GangState
from kompakt_extender.gangs import expected_members, expected_uid, placed_message, worker_index
from kompakt_extender.jobs import Jobs
from kompakt_extender.ledger import GpuLedger
from kompakt_extender.planner.pending_writes import PendingWrites
from kompakt_extender.planner.plan_lookup import is_known, looked_up
from kompakt_extender.planner.planning_request import PlanningRequest
from kompakt_extender.planner.transitions import Transitions
from kompakt_extender.planner.waiting_status import awaiting_pods, without_places
from kompakt_extender.views import JobView, PodView

_LOG = logging.getLogger(__name__)
PATIENCE_SECONDS: Final = 120.0  # since the last pod came
PODS_DIFFER: Final = "PodsDiffer"
_NO_PODS: Final = (
    "its pods cannot be created now (the condition Reconciling or Stalled says why); it is planned again when they can"
)


class ReservedPlaces:
    """Keeps them from when they are found until the gang is released on them."""

    def __init__(
        self,
        ledger: GpuLedger,
        jobs: Jobs,
        writes: PendingWrites,
        transitions: Transitions,
        clock: Callable[[], datetime],
        steady: Callable[[], float],
    ) -> None:
        self._ledger = ledger
        self._jobs = jobs
        self._writes = writes
        self._transitions = transitions
        self._clock = clock
        self._steady = steady

    def reserve(self, now: PlanningRequest, plan: PlanRecord) -> None:
        """The gang has these places."""
        self._transitions.reserve_places(self._jobs.states[now.job.uid], plan.pods, {pod.uid: pod for pod in now.pods})
        record = awaiting_pods(now.record, plan)
        self._jobs.decide(now.job, record)
        self._writes.places(now.job, record)

    def adopt(self) -> None:
        """Take over what an earlier leader had written, newest first, as far as nobody has it by now."""
        records = [(self._jobs.record(job), job) for job in self._jobs.views.values()]
        found = [(record.plan, job) for record, job in records if record.plan is not None and _awaits_pods(job, record)]
        for plan, job in sorted(found, key=lambda one: (one[0].released_at, one[1].uid), reverse=True):
            plan, pods = looked_up(plan, (), self._ledger.topologies), {pod.uid: pod for pod in expected_members(job)}
            if self._may_have(job, plan, pods):
                self._jobs.look_up(job, plan)
                self._transitions.reserve_places(self._jobs.states[job.uid], plan.pods, pods)

    def _may_have(self, job: JobView, plan: PlanRecord, pods: Mapping[PodUid, PodView]) -> bool:
        """A status can be forged: no more than its pods ask for, and nothing that others have."""
        right = [seat.uid for seat in plan.pods if is_known(seat) and seat.uid in pods and len(seat.gpus) == pods[seat.uid].gpus]
        if not len(right) == len(plan.pods) == len(pods) or set(right) != pods.keys() or self._jobs.limits.beyond(job):
            return False
        wanted: dict[NodeName, list[GpuIndex]] = {}
        for seat in plan.pods:
            wanted.setdefault(seat.node, []).extend(seat.indices)
        return all(self._free(node, indices) for node, indices in wanted.items())

    def _free(self, name: NodeName, indices: list[GpuIndex]) -> bool:
        state = self._ledger.state(name)
        return state is not None and len(set(indices)) == len(indices) and not mask_of(tuple(indices)) & ~state.free

    def settle(self, job: JobView, gang: GangState, pods: Sequence[PodView], *, goes_on: bool) -> bool:
        """Go on with the gang if it has such places; whether a write was begun."""
        if not goes_on:
            self._transitions.unreserve_places(gang)
        elif gang.record.state is State.RESERVED and gang.record.plan is not None:
            return self._settle(job, gang, gang.record.plan, pods)
        return False

    def _settle(self, job: JobView, gang: GangState, plan: PlanRecord, pods: Sequence[PodView]) -> bool:
        if not gang.places:  # not taken over, or not written: it is planned anew
            self._jobs.decide(job, without_places(gang.record, State.WAITING.value, ""))
            return False
        created = [pod for pod in pods if pod.exists]
        if len(created) == job.workers and (other := next(filter(None, _different(job, created)), None)) is not None:
            words = (
                f"pod {other.name} is not what the API server answered to the dry run; the gang is planned again as its pods are"
            )
            self._give_up(job, gang, PODS_DIFFER, words)
        elif len(created) == job.workers:
            self._release(job, gang, plan, created)
        elif not pods:
            self._give_up(job, gang, State.WAITING.value, _NO_PODS)
        elif self._late(gang, len(created)):
            words = f"no pod of it came within {PATIENCE_SECONDS:.0f} s; it is planned again when all exist"
            self._give_up(job, gang, PODS_NOT_CREATED, words)
        elif gang.record != gang.written:
            self._writes.places(job, gang.record)
        else:
            return False
        return True

    def _late(self, gang: GangState, created: int) -> bool:
        if gang.awaited is None or gang.awaited.pods != created:
            gang.awaited = Awaited(created, self._steady())
        return self._steady() - gang.awaited.since >= PATIENCE_SECONDS

    def _release(self, job: JobView, gang: GangState, plan: PlanRecord, pods: Sequence[PodView]) -> None:
        """The pods are what was planned for."""
        uids = {expected_uid(job, worker_index(pod)): pod.uid for pod in pods}
        seats = tuple(replace(seat, uid=uids[seat.uid]) for seat in plan.pods)
        plan = replace(plan, pods=seats, released_at=timestamps.encode(self._clock()))
        self._transitions.plan(gang, seats, {pod.uid: pod for pod in pods})
        released = replace(gang.record, state=State.RELEASED, reason="Released", message=placed_message(plan), plan=plan)
        self._writes.plan(job, released)

    def _give_up(self, job: JobView, gang: GangState, reason: str, message: str) -> None:
        _LOG.warning("%s/%s: its places are given back: %s", job.namespace, job.name, message)
        self._transitions.unreserve_places(gang)
        gang.result = None
        record = without_places(gang.record, reason, message)
        self._jobs.decide(job, record)
        self._writes.status(job, record)


def _awaits_pods(job: JobView, record: Record) -> bool:
    goes_on = job.ours and not (job.suspended or job.finished)
    return goes_on and record.state is State.RESERVED and record.plan is not None and record.attempt == job.attempt


def _different(job: JobView, pods: Iterable[PodView]) -> Iterable[PodView]:
    """The pods that ask for something else than was expected of them, or are not those that were: each index stands once."""
    expected = {worker_index(pod): pod for pod in expected_members(job)}
    for pod in pods:
        one = expected.pop(worker_index(pod), None)
        if one is None or _asks(one, job) != _asks(pod, job):
            yield pod


def _asks(pod: PodView, job: JobView) -> tuple[object, ...]:
    """What a pod's place depends on. Edges of the whole gang differ from pod to pod, and stand on the job."""
    notes = {} if job.edges else {key: text for key, text in pod.annotations.items() if key in INPUT_ANNOTATIONS}
    amounts = pod.gpus, pod.problem, pod.cpu_millis, pod.memory_bytes, pod.priority, pod.preempts
    return *amounts, node_rules.read(pod.rules), notes
