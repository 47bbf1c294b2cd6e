"""Bins for 16-bit types, rounded to nearest: made of whole numbers of the type, so that no rounding is left to keep room for.

The positive numbers of such a type, in order, are 0, 1, 2, ... as bit patterns. Where they lie close beside the bound, bins are
of equal width and their middles rounded into the type, as for wider types. From where their spacing u is an eighth of the
bound, a bin is 2 floor(bound / u) + 1 neighbours and comes back as the one in the middle, at most floor(bound / u) u away:
as many as one number of the type can stand for. Numbers further apart than the bound stand for themselves.
"""

import functools
import math
from dataclasses import dataclass
from typing import Any

import torch

from kompakt_runtime.codec.grid import Grid, within
from kompakt_runtime.compat.streams import stream_on

Tensor = Any

NUMBERS = 1 << 15  # bit patterns without the sign
RUNGS = 4  # powers of two in which bins may hold several numbers


@dataclass(frozen=True)
class Bins:
    """digits: stored digits of the type's numbers; step: width of the equal bins; first: the pattern from which on bins are made
    of neighbours; below: codes that the equal bins may use; sizes: neighbours in a bin, for each of RUNGS powers of two."""

    digits: int
    step: float
    first: int
    below: int
    sizes: tuple[int, ...]

    @property
    def starts(self) -> list[tuple[int, int, int]]:
        """The first pattern, its code and the size of a bin, of each power of two; the last goes on to the end."""
        found, pattern, code = [], self.first, self.below
        for size in (*self.sizes, 1):
            found.append((pattern, code, size))
            end = min(pattern + (1 << self.digits), NUMBERS)
            pattern, code = end, code + -(-(end - pattern) // size)
        return found


@functools.lru_cache(1024)
def bins(dtype: Any, bound: float) -> Bins:
    """bound: of a grid, so float32 holds it. Its quotients by spacings, which are powers of two, are exact."""
    digits, bias, last = (10, 15, 31) if dtype == torch.float16 else (7, 127, 255)

    def spacing(exponent: int) -> float:
        return math.ldexp(1.0, max(exponent, 1) - bias - digits)  # subnormal numbers: as the first power of two

    exponent = next((e for e in range(last) if 8 * spacing(e) >= bound), last)
    sizes = tuple(2 * math.floor(bound / spacing(exponent + rung)) + 1 for rung in range(RUNGS))
    if exponent == 0:
        return Bins(digits, 2 * bound, 0, 0, sizes)
    step = 2 * bound - spacing(exponent - 1)  # float32 holds it
    edge = math.ldexp(1.0, exponent - bias)
    return Bins(digits, step, exponent << digits, int(edge / step) + 2, sizes)


def tables(grid: Grid, like: Tensor) -> tuple[Tensor, Tensor]:
    """The code of each pattern (int32; -1 where no code keeps the bound), and the pattern (int16) that each code stands for.

    On the device of `like`. Made of operations that read nothing back, and kept: a layer's bound changes seldom. Each stream of
    a GPU has its own, for another might read them before they are written. Tensors that only stand for others have none kept.
    """
    device = like.device
    if type(like) is not torch.Tensor:
        return _made(grid.dtype, grid.bound, device)
    return _kept(grid.dtype, grid.bound, device, stream_on(device))


@functools.lru_cache(32)
def _kept(dtype: Any, bound: float, device: Any, stream: int | None) -> tuple[Tensor, Tensor]:
    return _made(dtype, bound, device)


def _made(dtype: Any, bound: float, device: Any) -> tuple[Tensor, Tensor]:
    own = bins(dtype, bound)
    backs = _backs(own, dtype, device)
    patterns = torch.arange(NUMBERS, dtype=torch.int32, device=device)
    numbers = patterns.to(torch.int16).view(dtype).to(torch.float32)
    codes = (numbers * (1 / own.step)).floor_().clamp_(max=own.below).to(torch.int32)
    for pattern, code, size in own.starts:
        codes = torch.where(patterns >= pattern, (patterns - pattern) // size + code, codes)
    back = backs.index_select(0, codes).view(dtype).to(torch.float32)
    kept = within(back, numbers, bound) & ((back > 0) | (numbers == 0))
    return torch.where(kept, codes, -1), backs


def _backs(own: Bins, dtype: Any, device: Any) -> Tensor:
    pattern, code, _ = own.starts[-1]
    codes = torch.arange(code + NUMBERS - pattern, dtype=torch.int32, device=device)
    middles = ((codes.to(torch.float32) + 0.5) * own.step).to(dtype)
    found = middles.view(torch.int16).to(torch.int32).clamp_(max=max(own.first - 1, 0))
    ends = [pattern for pattern, _, _ in own.starts[1:]]
    for (pattern, code, size), end in zip(own.starts, [*ends, NUMBERS], strict=True):
        middle = ((codes - code) * size + (pattern + size // 2)).clamp_(max=end - 1)
        found = torch.where(codes >= code, middle, found)
    return found.to(torch.int16)


def quantise(grid: Grid, values: Tensor) -> tuple[Tensor, Tensor]:
    """Codes (int32; 0 for outliers and zeros) and which elements are outliers; values: of the tensor's 16-bit type."""
    codes, _ = tables(grid, values)
    patterns = values.view(torch.int16).to(torch.int32) & (NUMBERS - 1)
    found = codes.index_select(0, patterns.view(-1)).view(values.shape)
    outside = found < 0
    return found.clamp_(min=0), outside


def restored(grid: Grid, codes: Tensor) -> Tensor:
    """The magnitudes that codes (whole numbers) stand for, in the tensor's type; some number for codes that no encoder writes."""
    _, backs = tables(grid, codes)
    known = codes.to(torch.int32).clamp_(max=backs.numel() - 1)
    return backs.index_select(0, known.view(-1)).view(grid.dtype).view(codes.shape)
