"""The cluster's free GPUs as one number, so that giving, taking back and the invariant are a few integer operations.

machine 0        machine 1        machine 2            4 GPUs each
bits 0 1 2 3     bits 4 5 6 7     bits 8 9 10 11       bit set = GPU free
"""

from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import NewType

from kompakt_core.errors import Bug, InvalidInput
from kompakt_core.ids import GpuMask
from kompakt_core.placement.model import Level
from kompakt_core.policy.levels import Levels

GpuSet = NewType("GpuSet", int)  # a set of GPUs of the whole cluster: bit = first GPU of its machine + index
NOTHING = GpuSet(0)
MOST_GPUS = 1_000_000


@dataclass(frozen=True)
class ClusterShape:
    """Machines in order, each with its number of GPUs, its rack and its block (None: the cluster has no blocks)."""

    sizes: tuple[int, ...]
    racks: tuple[int, ...]
    blocks: tuple[int, ...] | None = None

    @classmethod
    def grid(cls, racks: int, machines: int, gpus: int) -> "ClusterShape":
        """Equal racks of equal machines. Raises InvalidInput for less than one of each, or more than a million GPUs."""
        if min(racks, machines, gpus) < 1 or racks * machines * gpus > MOST_GPUS:
            given = f"{racks} racks of {machines} machines of {gpus} GPUs"
            raise InvalidInput(f"{given}; expected at least one of each, and at most {MOST_GPUS} GPUs in all")
        return cls((gpus,) * (racks * machines), tuple(rack for rack in range(racks) for _ in range(machines)))

    @cached_property
    def gpus(self) -> int:
        """All GPUs of the cluster."""
        return sum(self.sizes)

    @cached_property
    def first(self) -> tuple[int, ...]:
        """Number of each machine's first GPU."""
        return (0, *accumulate(self.sizes))[:-1]

    @cached_property
    def masks(self) -> tuple[int, ...]:
        """All GPUs of each machine."""
        return tuple((1 << size) - 1 << start for start, size in zip(self.first, self.sizes, strict=True))

    @cached_property
    def half_masks(self) -> tuple[int, ...]:
        """The GPUs of the two halves of each machine, the larger first; one of nothing for a machine of one GPU."""
        halves = zip(self.first, self.sizes, strict=True)
        cuts = ((start, size, start + (size + 1) // 2) for start, size in halves)
        return tuple(mask for start, size, cut in cuts for mask in (_span(start, cut), _span(cut, start + size)))

    @cached_property
    def machine_of(self) -> tuple[int, ...]:
        """The machine of each GPU."""
        return tuple(machine for machine, size in enumerate(self.sizes) for _ in range(size))

    @cached_property
    def rack_machines(self) -> tuple[tuple[int, ...], ...]:
        """The machines of each rack."""
        return _members(self.racks)

    @cached_property
    def rack_masks(self) -> tuple[int, ...]:
        """All GPUs of each rack."""
        return tuple(sum(self.masks[machine] for machine in machines) for machines in self.rack_machines)

    @cached_property
    def block_machines(self) -> tuple[tuple[int, ...], ...]:
        """The machines of each block; none without blocks."""
        return _members(self.blocks) if self.blocks else ()

    @cached_property
    def block_masks(self) -> tuple[int, ...]:
        """All GPUs of each block."""
        return tuple(sum(self.masks[machine] for machine in machines) for machines in self.block_machines)

    @cached_property
    def levels(self) -> Levels:
        """How many GPUs the largest machine, rack and block hold."""

        def largest(groups: tuple[tuple[int, ...], ...]) -> int:
            return max(sum(self.sizes[machine] for machine in machines) for machines in groups)

        blocks = ((Level.BLOCK, largest(self.block_machines)),) if self.blocks else ()
        inner = ((Level.MACHINE, max(self.sizes)), (Level.RACK, largest(self.rack_machines)))
        return Levels((*inner, *blocks, (Level.CLUSTER, self.gpus)))

    def per_machine(self, gpus: GpuSet) -> dict[int, int]:
        """How many GPUs of the set lie on each machine that has one, machines in ascending order."""
        found: dict[int, int] = {}
        rest = int(gpus)
        while rest:
            machine = self.machine_of[(rest & -rest).bit_length() - 1]
            part = rest & self.masks[machine]
            found[machine] = part.bit_count()
            rest ^= part
        return found

    def level_of(self, gpus: GpuSet) -> Level:
        """The smallest level that contains the set."""
        low = self.machine_of[(gpus & -gpus).bit_length() - 1]
        if not gpus & ~self.masks[low]:
            return Level.MACHINE
        if not gpus & ~self.rack_masks[self.racks[low]]:
            return Level.RACK
        if self.blocks and not gpus & ~self.block_masks[self.blocks[low]]:
            return Level.BLOCK
        return Level.CLUSTER


def _span(start: int, stop: int) -> int:
    return (1 << stop) - (1 << start)


def _members(group_of: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    groups: dict[int, list[int]] = {}
    for machine, group in enumerate(group_of):
        groups.setdefault(group, []).append(machine)
    return tuple(tuple(groups[group]) for group in range(len(groups)))


@dataclass(frozen=True, slots=True)
class ClusterState:
    """A shape, which of its GPUs are free, and how many on each machine. Giving and taking back make a new value."""

    shape: ClusterShape
    free: GpuSet
    counts: tuple[int, ...]

    @classmethod
    def of(cls, shape: ClusterShape, free: GpuSet | None = None) -> "ClusterState":
        """A cluster of this shape with these GPUs free; without `free` all are."""
        every = GpuSet((1 << shape.gpus) - 1)
        chosen = every if free is None else free
        return cls(shape, chosen, tuple((chosen & mask).bit_count() for mask in shape.masks))

    @classmethod
    def empty(cls, machines: int, gpus_per_machine: int) -> "ClusterState":
        """One rack of equal machines with every GPU free. Raises InvalidInput like ClusterShape.grid."""
        return cls.of(ClusterShape.grid(1, machines, gpus_per_machine))

    @property
    def machines(self) -> int:
        """How many machines there are."""
        return len(self.shape.sizes)

    @property
    def gpus_per_machine(self) -> int:
        """GPUs of the largest machine."""
        return max(self.shape.sizes)

    @property
    def size(self) -> int:
        """All GPUs, free or not."""
        return self.shape.gpus

    def free_of(self, machine: int) -> GpuMask:
        """The free GPUs of one machine."""
        return GpuMask((self.free & self.shape.masks[machine]) >> self.shape.first[machine])

    def on_machine(self, machine: int, gpus: GpuMask) -> GpuSet:
        """These GPUs of one machine as a set of the cluster's GPUs."""
        return GpuSet(gpus << self.shape.first[machine])

    def lowest(self, machine: int, gpus: int) -> GpuSet:
        """The lowest free GPUs of one machine, that many. They must be there."""
        return lowest_of(GpuSet(self.free & self.shape.masks[machine]), gpus)

    def with_taken(self, gpus: GpuSet) -> "ClusterState":
        """The cluster after these GPUs were given away. Raises Bug if one of them was not free."""
        if gpus & ~self.free:
            raise Bug(f"GPUs {gpus & ~self.free:#x} were given away twice")
        return self._changed(gpus, -1)

    def with_freed(self, gpus: GpuSet) -> "ClusterState":
        """The cluster after these GPUs came back. Raises Bug if one of them was free already."""
        if gpus & self.free:
            raise Bug(f"GPUs {gpus & self.free:#x} came back twice")
        return self._changed(gpus, 1)

    def only(self, gpus: GpuSet) -> "ClusterState":
        """The same shape with just these GPUs free."""
        return self if gpus == self.free else ClusterState.of(self.shape, gpus)

    def _changed(self, gpus: GpuSet, sign: int) -> "ClusterState":
        counts = list(self.counts)
        for machine, number in self.shape.per_machine(gpus).items():
            counts[machine] += sign * number
        return ClusterState(self.shape, GpuSet(self.free ^ gpus), tuple(counts))


def lowest_of(gpus: GpuSet, number: int) -> GpuSet:
    """The `number` lowest GPUs of a set that has at least so many."""
    rest = int(gpus)
    for _ in range(number):
        rest &= rest - 1  # clears the lowest set bit
    return GpuSet(gpus & ~rest)
