"""GPUs on offer: some of the cluster's, free or about to be, and the levels they could serve."""

from kompakt_core.placement.model import Level
from kompakt_simulator.cluster import ClusterShape, ClusterState, GpuSet, lowest_of
from kompakt_simulator.placements import at_level


class Pool:
    """A set of GPUs that only shrinks."""

    def __init__(self, shape: ClusterShape, gpus: GpuSet) -> None:
        self._shape = shape
        self.gpus = gpus
        self.size = gpus.bit_count()
        self._counts: dict[int, int] | None = None

    def take(self, gpus: GpuSet) -> None:
        """These are no longer on offer."""
        self.gpus = GpuSet(self.gpus & ~gpus)
        self.size = self.gpus.bit_count()
        self._counts = None

    def level(self, gpus: int) -> Level | None:
        """The innermost level at which so many lie together; None when there are fewer."""
        if gpus > self.size:
            return None
        if gpus == 1 or max(self._per_machine().values()) >= gpus:
            return Level.MACHINE
        if self._holding(self._shape.rack_masks, gpus) is not None:
            return Level.RACK
        if self._holding(self._shape.block_masks, gpus) is not None:
            return Level.BLOCK
        return Level.CLUSTER

    def first_fit(self, gpus: int, level: Level) -> GpuSet:
        """The lowest ones of the first member of that level that has enough."""
        member = self._holding(members(self._shape, level), gpus)
        assert member is not None
        return lowest_of(GpuSet(self.gpus & member), gpus)

    def first_half(self, gpus: int) -> GpuSet | None:
        """The lowest ones of the first half of a machine that has enough; None where none has."""
        member = self._holding(self._shape.half_masks, gpus)
        return None if member is None else lowest_of(GpuSet(self.gpus & member), gpus)

    def best_fit(self, gpus: int, level: Level) -> GpuSet:
        """See placements.levels.at_level."""
        return at_level(ClusterState.of(self._shape, self.gpus), gpus, level)

    def _holding(self, masks: tuple[int, ...], gpus: int) -> int | None:
        return next((mask for mask in masks if (self.gpus & mask).bit_count() >= gpus), None)

    def _per_machine(self) -> dict[int, int]:
        if self._counts is None:
            self._counts = self._shape.per_machine(self.gpus)
        return self._counts


def members(shape: ClusterShape, level: Level) -> tuple[int, ...]:
    """The GPUs of each machine, rack or block of the cluster; of the whole cluster -1, all."""
    return {Level.MACHINE: shape.masks, Level.RACK: shape.rack_masks, Level.BLOCK: shape.block_masks}.get(level, (-1,))
