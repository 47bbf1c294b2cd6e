"""What is kept for a gang that others have passed too often: a number of GPUs on some nodes, where it would sit if it could."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from kompakt_core.ids import NodeName
from kompakt_core.placement.model import Level, Snapshot
from kompakt_core.placement.seating import SeatSearch


@dataclass(frozen=True, slots=True)
class Keep:
    """So many GPUs of each of these nodes, taken or free now, are the next that this gang gets; `level` is how it sits there."""

    level: Level
    gpus: Mapping[NodeName, int]


def keep_at(level: Level, empty: SeatSearch, now: Snapshot) -> Keep | None:
    """The place at that level which lacks the fewest GPUs now; ties end on names. None where no place could hold the gang.

    `empty`: the gang on the cluster as if nothing ran, without nodes that are kept for others.
    """
    best: tuple[int, tuple[NodeName, ...], Keep] | None = None
    for seating in empty.seatings(level):
        gpus = Counter[NodeName]()
        for worker, node, _ in seating:
            gpus[node] += worker.gpus
        lacking = sum(max(0, number - now.nodes[node].free.bit_count()) for node, number in gpus.items())
        found = lacking, tuple(sorted(gpus)), Keep(level, dict(gpus))
        if best is None or found[:2] < best[:2]:
            best = found
    return None if best is None else best[2]
