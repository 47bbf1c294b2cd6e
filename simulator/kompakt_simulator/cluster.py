"""The cluster's free GPUs as one number, so that giving, taking back and the invariant are a few integer operations.

machine 0        machine 1        machine 2            4 GPUs each
bits 0 1 2 3     bits 4 5 6 7     bits 8 9 10 11       bit set = GPU free
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NewType

from kompakt_core.errors import Bug, InvalidInput
from kompakt_core.ids import GpuMask

GpuSet = NewType("GpuSet", int)  # a set of GPUs of the whole cluster: bit machine * gpus_per_machine + index


@dataclass(frozen=True, slots=True)
class Cluster:
    """Equal machines, and which of their GPUs are free. Giving and taking back make a new value."""

    machines: int
    gpus_per_machine: int
    free: GpuSet

    @classmethod
    def empty(cls, machines: int, gpus_per_machine: int) -> "Cluster":
        """A cluster with every GPU free. Raises InvalidInput for less than one machine or GPU, or more than a million GPUs."""
        if machines < 1 or gpus_per_machine < 1 or machines * gpus_per_machine > 1_000_000:
            given = f"{machines} machines of {gpus_per_machine} GPUs"
            raise InvalidInput(f"{given}; expected at least one of each, and at most 1000000 GPUs in all")
        return cls(machines, gpus_per_machine, GpuSet((1 << machines * gpus_per_machine) - 1))

    @property
    def size(self) -> int:
        """All GPUs, free or not."""
        return self.machines * self.gpus_per_machine

    def free_of(self, machine: int) -> GpuMask:
        """The free GPUs of one machine."""
        return GpuMask(self.free >> machine * self.gpus_per_machine & (1 << self.gpus_per_machine) - 1)

    def on_machine(self, machine: int, gpus: GpuMask) -> GpuSet:
        """These GPUs of one machine as a set of the cluster's GPUs."""
        return GpuSet(gpus << machine * self.gpus_per_machine)

    def with_taken(self, gpus: GpuSet) -> "Cluster":
        """The cluster after these GPUs were given away. Raises Bug if one of them was not free."""
        if gpus & ~self.free:
            raise Bug(f"GPUs {gpus & ~self.free:#x} were given away twice")
        return replace(self, free=GpuSet(self.free & ~gpus))

    def with_freed(self, gpus: GpuSet) -> "Cluster":
        """The cluster after these GPUs came back. Raises Bug if one of them was free already."""
        if gpus & self.free:
            raise Bug(f"GPUs {gpus & self.free:#x} came back twice")
        return replace(self, free=GpuSet(self.free | gpus))


def check_invariant(cluster: Cluster, held: Iterable[tuple[int, GpuSet]]) -> None:
    """No GPU is held twice, no job holds a part of its GPUs, none is lost. Raises Bug.

    `held`: GPUs asked for and GPUs held, of each running job.
    """
    union = asked = 0
    for wanted, gpus in held:
        if gpus.bit_count() != wanted:
            raise Bug(f"a job that needs {wanted} GPUs holds {gpus.bit_count()}")
        union |= gpus
        asked += wanted
    if union.bit_count() != asked:
        raise Bug(f"{asked} GPUs are held, but only {union.bit_count()} different ones: one is held twice")
    if union ^ cluster.free != (1 << cluster.size) - 1:
        raise Bug("a GPU is both free and held, or neither")
