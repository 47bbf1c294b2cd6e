"""Which GPUs the indices of a plan stand for, when it was read from a job's status."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from kompakt_core.contract.plan_record import PlanRecord, SeatRecord
from kompakt_core.ids import NodeName
from kompakt_extender.record import uuids_of
from kompakt_extender.views import PodView, TopologyView


def looked_up(plan: PlanRecord, pods: Iterable[PodView], topologies: Mapping[NodeName, TopologyView]) -> PlanRecord:
    """The plan with the GPUs of these nodes. If one of them has other GPUs by now, only pods that carry theirs have any."""
    if all(map(is_known, plan.pods)):
        return plan
    found = plan.looked_up({node: uuids_of(topologies[node].graph) for node in plan.gpu_nodes if node in topologies})
    if found is not None:
        return found
    carried = {pod.uid: pod for pod in pods}
    return replace(plan, pods=tuple(_as_carried(seat, carried.get(seat.uid)) for seat in plan.pods))


def is_known(seat: SeatRecord) -> bool:
    """Whether the seat says which GPUs it has."""
    return bool(seat.gpus) or not seat.indices


def _as_carried(seat: SeatRecord, pod: PodView | None) -> SeatRecord:
    carries = pod is not None and pod.planned_node == seat.node and len(pod.planned_gpus) == len(seat.indices)
    return replace(seat, gpus=pod.planned_gpus) if pod is not None and carries else seat
