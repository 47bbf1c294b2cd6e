"""The numbers an element may come back as: bins whose middles keep a strict bound, or a grid for unbiased rounding.
16-bit types have bins of their own for the first: `short.py`.

Nearest: an element x that is not zero has the code k = floor(|x| / step) and comes back as sign(x) (k + 1/2) step, rounded
into the tensor's own type: the middle of its bin, so zero stays zero, signs hold, and the error is at most step / 2 plus
a rounding far finer than that. This is the zero- and sign-exact form of uniform quantisation; Jin et al., COMET (arXiv
2111.09562), restore zeros for the same reason: errors on zeros after a ReLU would reach gradients that are exact without them.

Stochastic: |x| goes to one of the two multiples of step around it, up with the probability that makes the mean exact. The
step is a power of two, so every multiple that can be reached is a number of the tensor's type and no rounding is left
that could bias it. The multiple 0 comes back as the smallest number of x's sign, so that nonzero stays nonzero.

Whatever then misses the bound (judged exactly, as real numbers), is not finite or loses its sign, is an outlier.
Every operation is rounded once and named on its own, in the same order on every device: equal inputs give equal codes.
"""

import math
import struct
from dataclasses import dataclass
from typing import Any

import torch

Tensor = Any

WIDEST = 22  # bits of a code; k + 1/2 is then exact in float32
LOW32 = (1 << 32) - 1
DRAW_BITS = 24  # of the random number that decides; float32 holds it exactly
# Multipliers and shifts of a 32-bit mixing function, found by search for low bias: Wellons, "Prospecting for Hash Functions".
MIX = ((16, 0x7FEB352D), (15, 0x846CA68B))


def work_dtype(dtype: Any) -> Any:
    """The type to compute in: float64 for itself, float32 for the shorter ones, which it holds exactly."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def round_down(bound: float, work: Any) -> float:
    """The largest number of the working type that is at most `bound`."""
    if work == torch.float64:
        return bound
    pattern = struct.unpack("<I", struct.pack("<f", bound))[0]
    if struct.unpack("<f", struct.pack("<I", pattern))[0] > bound:
        pattern -= 1  # positive floats are in the order of their bit patterns
    return float(struct.unpack("<f", struct.pack("<I", pattern))[0])


@dataclass(frozen=True)
class Grid:
    """dtype: of the tensor; bound: a number of the working type; step: width of a bin (not of a 16-bit type's, to nearest)."""

    dtype: Any
    bound: float
    stochastic: bool

    @property
    def step(self) -> float:
        if not self.stochastic:
            return 2 * self.bound
        return math.ldexp(1.0, math.frexp(self.bound)[1] - 1)  # the largest power of two that is at most the bound

    @property
    def usable(self) -> bool:
        """False where the bound is so small that its reciprocal leaves the working type."""
        work = torch.finfo(work_dtype(self.dtype))
        return self.bound > 0 and self.step >= work.tiny and 1 / self.bound < work.max

    @property
    def short(self) -> bool:
        """Whether the bins are those of `short.py`."""
        return not self.stochastic and bool(torch.finfo(self.dtype).bits == 16)

    @property
    def smallest(self) -> float:
        """What the code 0 means on the stochastic grid: the smallest positive number that no mode of arithmetic flushes."""
        info = torch.finfo(self.dtype)
        return float(info.smallest_normal * info.eps if self.dtype == torch.float16 else info.tiny)


def make_grid(dtype: Any, error_bound: float, stochastic: bool) -> Grid:
    """The bound is rounded down into the type that is computed in, and is at most a quarter of the type's largest number: the
    promise may be stricter than asked, never looser."""
    largest = float(torch.finfo(dtype).max) / 4
    return Grid(dtype, round_down(min(error_bound, largest), work_dtype(dtype)), stochastic)


def quantise(grid: Grid, values: Tensor, draws: Tensor | None) -> tuple[Tensor, Tensor]:
    """Codes (int32; 0 for outliers and zeros) and which elements are outliers.

    values: of the tensor's type; draws: see `draw`.
    """
    magnitude = values.to(work_dtype(values.dtype)).abs()
    scaled = magnitude * (1 / grid.step)
    code = scaled.floor()
    if draws is not None:
        code += ((scaled - code) * float(1 << DRAW_BITS) > draws).to(code.dtype)
    fits = code < (1 << WIDEST)  # false for NaN and infinity too
    back = restored(grid, code).to(magnitude.dtype)
    inside = within(back, magnitude, grid.bound) & fits & (back > 0)
    outside = ~inside
    outside &= values != 0
    # Whatever integer became of what does not fit, times 0. (torch.where is ten times slower on CPUs.)
    return code.to(torch.int32).mul_(inside), outside


def restored(grid: Grid, code: Tensor) -> Tensor:
    """The magnitudes that codes (of the working type) stand for, in the tensor's type."""
    if grid.stochastic:
        return (code * grid.step).to(grid.dtype).clamp_(min=grid.smallest)
    return (code + 0.5).mul_(grid.step).to(grid.dtype)


def within(back: Tensor, magnitude: Tensor, bound: float) -> Tensor:
    """|back - magnitude| <= bound as real numbers: the difference with its exact rounding error (Knuth's two-sum)."""
    difference = back - magnitude
    size = difference.abs()
    inside: Tensor = size < bound
    touching = size == bound
    # Rare; looked for only where looking costs nothing.
    if touching.device.type == "cpu" and not touching.any():
        return inside
    shadow = difference - back
    error = (back - (difference - shadow)) - (magnitude + shadow)
    return inside | (touching & (error * difference.sign() <= 0))


def keys(seed: int) -> tuple[int, int]:
    """Two 32-bit numbers from a seed (modulo 2^64). Both depend on all of it: neighbouring seeds share no draws."""
    low = mix(seed & LOW32)
    high = mix(low ^ ((seed >> 32) & LOW32))
    return mix(high ^ low), high


def draw(seed: int, elements: Tensor) -> Tensor:
    """A random number in 0 .. 2^24 - 1 (int64) for each element number (int64): a counter hash in whole-number arithmetic."""
    first, second = keys(seed)
    mixed: Tensor = mix(mix((elements & LOW32) ^ first) ^ (elements >> 32) ^ second)
    return mixed >> (32 - DRAW_BITS)


def mix(h: Any) -> Any:
    """A permutation of 32-bit numbers, held in whole numbers or in int64 tensors, whose products wrap: the low 32 bits count."""
    for shift, factor in MIX:
        h = ((h ^ (h >> shift)) * factor) & LOW32
    return h ^ (h >> 16)
