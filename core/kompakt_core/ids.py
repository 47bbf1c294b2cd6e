"""Typed names, so that a swapped argument is a type error and not a wrong GPU."""

from typing import Final, NewType, cast

GpuIndex = NewType("GpuIndex", int)  # position of a GPU on its node, 0-based
GpuUuid = NewType("GpuUuid", str)
GpuMask = NewType("GpuMask", int)  # a set of GPUs of one node: bit i stands for GPU index i
NodeName = NewType("NodeName", str)
JobUid = NewType("JobUid", str)
PodUid = NewType("PodUid", str)
MegabytesPerSecond = NewType("MegabytesPerSecond", int)

NO_GPUS: Final = GpuMask(0)
NO_BANDWIDTH: Final = MegabytesPerSecond(0)


def mask_of(indices: "list[int] | tuple[int, ...]") -> GpuMask:
    """The set that holds exactly these GPU indices."""
    mask = 0
    for index in indices:
        mask |= 1 << index
    return GpuMask(mask)


def indices_of(mask: int) -> tuple[GpuIndex, ...]:
    """The GPU indices of a set, ascending."""
    return cast("tuple[GpuIndex, ...]", tuple([i for i in range(mask.bit_length()) if mask >> i & 1]))
