"""What the one-pass kernels write: one allocation of int32 words. Needs no Triton.

    0        16-byte units that tiles asked for; elements without a code; two words unused
    4        two words for each tile: the first unit it has, then width | signed << 5 | patches << 12 (width 31: as it was)
    start    tiles of 2048 elements in the order in which they came: codes, then patches, each part a multiple of 16 bytes
    rest     elements after the last whole tile, as they were

A tile is one warp's: each of 32 lanes holds 64 of its elements. A patch is an element without a code, as it was, with its
place in the tile.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

Tensor = Any

TILE: Final = 2048
LANES: Final = 32
PAIRS: Final = 32  # words of two halves that a lane holds
RAW: Final = 31  # in place of a width
HEAD: Final = 4  # words before the table
COUNTED: Final = 2  # of them are counters
UNIT: Final = 16  # bytes
CROWDED: Final = 8  # lanes whose sample may have numbers without a code: about 2 % of elements
ALIGNED: Final = 16  # words; the compiler then knows that 16-byte loads are aligned
WHOLE: Final = 1 << 32  # elements of a part: numbers of units fit 31 bits then


@dataclass(frozen=True)
class Offsets:
    """tiles: how many are whole; the others are words: where packed tiles begin, where the rest begins, and the end."""

    tiles: int
    start: int
    rest: int
    end: int

    @staticmethod
    def of(elements: int, item: int, capacity: int) -> "Offsets":
        """capacity: units that packed tiles have."""
        tiles = elements // TILE
        start = -(-(HEAD + 2 * tiles) // ALIGNED) * ALIGNED
        rest = start + UNIT // 4 * capacity
        return Offsets(tiles, start, rest, rest + -(-(elements - tiles * TILE) * item // UNIT) * (UNIT // 4))


def most_units(elements: int, item: int) -> int:
    """What suffices for anything: every tile as it was."""
    return elements // TILE * (TILE * item // UNIT)


@dataclass(frozen=True)
class OnePassPart:
    """A run of a tensor's elements. scales: the table its codes were made with; used: units that tiles have asked for, -1 while
    that is not known; capacity: units there are.
    """

    dtype: Any
    elements: int
    capacity: int
    words: Tensor
    scales: Tensor
    used: int = -1
    outliers: int = 0

    @property
    def nbytes(self) -> int:
        """Bytes held, unused room counted."""
        return int(self.words.numel()) * 4

    @property
    def needed(self) -> int:
        """Bytes of the packed tiles."""
        return UNIT * self.used

    @property
    def sections(self) -> list[Tensor]:
        """The tensors that grow with the elements."""
        return [self.words]

    def filled(self, sections: Iterator[Tensor]) -> "OnePassPart":
        """The same with these tensors in the places of its own."""
        return replace(self, words=next(sections))

    def counted(self, used: int, outliers: int) -> "OnePassPart":
        return replace(self, used=used, outliers=outliers)
