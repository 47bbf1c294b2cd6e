"""Pods that the controller of others made anew one by one, while the rest of their gang goes on: planned alone, beside those.

A gang whose pods all go is planned anew as a whole. Its pods may go and come one after the other, so newcomers are planned once
no pod of the gang has come or gone for a moment.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from kompakt_core import contract
from kompakt_core.contract.plan_record import PlanRecord, SeatRecord, digest_of
from kompakt_core.contract.scheduling_record import Record, State
from kompakt_core.ids import GpuUuid, NodeName, PodUid
from kompakt_core.placement.beside import free_ranks
from kompakt_extender.gang_state import GangState, SeenPods
from kompakt_extender.views import JobKind, JobView, PodView

SETTLE_SECONDS: Final = 1.0
PODS_WAIT: Final = "PodsWait"


class Newcomers:
    """Notes on a gang's state which pods are to be planned beside the others."""

    def __init__(self, steady: Callable[[], float]) -> None:
        self._steady = steady

    def note(self, gang: GangState, job: JobView, record: Record, pods: Sequence[PodView]) -> bool:
        """Whether there are any, to be planned now or in a moment."""
        fresh = _fresh(job, record, pods)
        gang.newcomers = ()
        if not fresh:
            gang.seen = None
            return False
        living = frozenset(pod.uid for pod in pods)
        if gang.seen is None or gang.seen.pods != living:
            gang.seen = SeenPods(living, self._steady())
        if self._steady() - gang.seen.since >= SETTLE_SECONDS:
            gang.newcomers = fresh
        return True


def _fresh(job: JobView, record: Record, pods: Sequence[PodView]) -> tuple[PodUid, ...]:
    """Pods without a place or node, if some of the gang have theirs and nothing but our gate holds the others."""
    if job.kind is not JobKind.GANG or record.state is not State.RELEASED or record.plan is None or len(pods) > job.workers:
        return ()
    planned = {seat.uid for seat in record.plan.pods}
    fresh = [pod for pod in pods if pod.uid not in planned and pod.node is None]
    free = all(pod.gates in ((), (contract.GATE,)) for pod in fresh)
    return tuple(pod.uid for pod in fresh) if free and len(fresh) < len(pods) else ()


def staying(record: Record, pods: Sequence[PodView], newcomers: Sequence[PodUid]) -> tuple[SeatRecord, ...]:
    """The places of those that newcomers join; none for a gang that is planned as a whole."""
    if record.plan is None or not newcomers:
        return ()
    living = {pod.uid for pod in pods}
    return tuple(seat for seat in record.plan.pods if seat.uid in living)


def joined(
    before: PlanRecord, stay: Sequence[SeatRecord], new: PlanRecord, gpus: Mapping[NodeName, Sequence[GpuUuid]]
) -> PlanRecord:
    """The plan of all: newcomers take the ranks that are free, the lowest first. `gpus`: of each node, by index."""
    ranks = free_ranks({seat.rank for seat in stay})
    seats = [*stay, *(replace(seat, rank=next(ranks)) for seat in new.pods)]
    values = [seat.value for seat in seats if seat.indices]
    return with_digest(
        replace(
            new,
            value=min(values, default=0),
            ideal=before.ideal,
            pods=tuple(sorted(seats, key=lambda seat: seat.rank)),
        ),
        gpus,
    )


def without(plan: PlanRecord, gone: Sequence[SeatRecord], gpus: Mapping[NodeName, Sequence[GpuUuid]]) -> PlanRecord:
    """The plan of the others."""
    return with_digest(replace(plan, pods=tuple(seat for seat in plan.pods if seat not in gone)), gpus)


def with_digest(plan: PlanRecord, gpus: Mapping[NodeName, Sequence[GpuUuid]]) -> PlanRecord:
    """The same, with the digest of the GPUs of its nodes."""
    return replace(plan, digest=digest_of({node: gpus[node] for node in plan.gpu_nodes if node in gpus}))
