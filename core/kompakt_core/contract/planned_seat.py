"""A worker's place as the planner writes it on the pod, in the patch that removes its gate."""

from collections.abc import Mapping
from dataclasses import dataclass

from kompakt_core import contract
from kompakt_core.contract import counts, gpu_lists
from kompakt_core.ids import GpuUuid, NodeName


@dataclass(frozen=True, slots=True)
class PlannedSeat:
    """`gpus` in pattern order; `rank` = node rank in the gang. `min_value`: MB/s that another node must reach, None: no other."""

    node: NodeName
    rank: int
    gpus: tuple[GpuUuid, ...] = ()
    min_value: int | None = None


def encode(seat: PlannedSeat) -> dict[str, str]:
    """The annotations; those on GPUs are left out where there are none."""
    notes = {contract.ANN_PLANNED_NODE: str(seat.node), contract.ANN_RANK: counts.encode(seat.rank)}
    if seat.gpus:
        notes[contract.ANN_PLANNED_GPUS] = gpu_lists.encode_uuids(seat.gpus)
    if seat.min_value is not None:
        notes[contract.ANN_MIN_VALUE] = counts.encode(seat.min_value)
    return notes


def decode(annotations: Mapping[str, str]) -> PlannedSeat | None:
    """The place written on a pod; None where there is none.

    Raises:
        InvalidInput: somebody wrote what the planner never writes.
    """
    if not annotations.get(contract.ANN_PLANNED_NODE):
        return None
    return PlannedSeat(
        node=NodeName(annotations[contract.ANN_PLANNED_NODE]),
        rank=counts.decode(annotations.get(contract.ANN_RANK), contract.ANN_RANK),
        gpus=gpu_lists.decode_uuids(annotations.get(contract.ANN_PLANNED_GPUS, ""), contract.ANN_PLANNED_GPUS),
        min_value=min_value(annotations),
    )


def node(annotations: Mapping[str, str]) -> NodeName:
    """The planned node; empty without a plan."""
    return NodeName(annotations.get(contract.ANN_PLANNED_NODE, ""))


def gpus(annotations: Mapping[str, str]) -> tuple[GpuUuid, ...]:
    """The planned GPUs; none where the annotation is of no use."""
    return gpu_lists.readable_uuids(annotations.get(contract.ANN_PLANNED_GPUS))


def min_value(annotations: Mapping[str, str]) -> int | None:
    """MB/s that another node must reach; None where no other will do.

    Raises:
        InvalidInput: the annotation is no whole number.
    """
    text = annotations.get(contract.ANN_MIN_VALUE)
    return None if text is None else counts.decode(text, contract.ANN_MIN_VALUE, "MB/s")
