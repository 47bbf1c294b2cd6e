"""The numbers an element may come back as: bins whose middles keep a strict bound, or a grid for unbiased rounding.

Nearest: an element x that is not zero has the code k = floor(|x| / step) and comes back as sign(x) (k + 1/2) step, rounded
into the tensor's own type: the middle of its bin, so zero stays zero, signs hold, and the error is at most step / 2 plus
the rounding. This is the zero- and sign-exact form of uniform quantisation; Jin et al., COMET (arXiv 2111.09562), restore
zeros for the same reason: errors on zeros after a ReLU would reach gradients that are exact without them.

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
    """The largest number of the working type that is at most `bound` (and at most a quarter of the type's largest)."""
    bound = min(bound, float(torch.finfo(work).max) / 4)
    if work == torch.float64:
        return bound
    pattern = struct.unpack("<I", struct.pack("<f", bound))[0]
    if struct.unpack("<f", struct.pack("<I", pattern))[0] > bound:
        pattern -= 1  # positive floats are in the order of their bit patterns
    return float(struct.unpack("<f", struct.pack("<I", pattern))[0])


@dataclass(frozen=True)
class Grid:
    """dtype: of the tensor; bound: a number of the working type; step: width of a bin, for 16-bit types before narrowing."""

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
    def narrowed(self) -> bool:
        """Whether each tile has a step of its own."""
        return not self.stochastic and torch.finfo(self.dtype).bits == 16

    @property
    def smallest(self) -> float:
        """What the code 0 means on the stochastic grid: the smallest positive number that no mode of arithmetic flushes."""
        info = torch.finfo(self.dtype)
        return float(info.smallest_normal * info.eps if self.dtype == torch.float16 else info.tiny)


def make_grid(dtype: Any, error_bound: float, stochastic: bool) -> Grid:
    """The bound is rounded down into the type that is computed in: the promise may be stricter than asked, never looser."""
    return Grid(dtype, round_down(error_bound, work_dtype(dtype)), stochastic)


def exponents(grid: Grid, largest: Tensor) -> Tensor:
    """Biased float32 exponents (int32) of the tiles' largest finite magnitudes (float32), at least the bound's."""
    return largest.clamp(min=grid.bound).view(torch.int32) >> 23


def narrowed_steps(grid: Grid, exponent: Tensor) -> Tensor:
    """Bin widths (float32) of tiles of a 16-bit type: twice the bound, less the spacing of its numbers at the largest element.

    With step = 2 bound - min(spacing, bound) the middle of a bin misses the bound by no rounding: either the spacing is
    at most the bound and step/2 + spacing/2 <= bound, or an element's spacing exceeds the step and the rounded middle
    is the element itself. float32 and float64 are so fine that the few misses are stored as outliers instead.
    """
    lowest, digits = (113, 10) if grid.dtype == torch.float16 else (1, 7)
    power = exponent.clamp(min=lowest).to(torch.int64) - 127 - digits
    spacing = ((power + 1023) << 52).view(torch.float64)
    exact = 2 * grid.bound - spacing.clamp(max=grid.bound)
    rounded = exact.to(torch.float32)
    over = rounded.to(torch.float64) > exact
    return (rounded.view(torch.int32) - over.to(torch.int32)).view(torch.float32)


def quantise(grid: Grid, values: Tensor, step: Any, inverse: Any, draws: Tensor | None) -> tuple[Tensor, Tensor]:
    """Codes (int32; 0 for outliers and zeros) and which elements are outliers.

    values: of the tensor's type; step, inverse: numbers, or float32 tensors that broadcast; draws: see `draw`.
    """
    magnitude = values.to(work_dtype(values.dtype)).abs()
    scaled = magnitude * inverse
    code = scaled.floor()
    if draws is not None:
        code += ((scaled - code) * float(1 << DRAW_BITS) > draws).to(code.dtype)
    fits = code < (1 << WIDEST)  # false for NaN and infinity too
    back = restored(grid, code, step).to(magnitude.dtype)
    inside = _within(back, magnitude, grid.bound) & fits & (back > 0)
    outside = ~inside
    outside &= values != 0
    # Whatever integer became of what does not fit, times 0. (torch.where is ten times slower on CPUs.)
    return code.to(torch.int32).mul_(inside), outside


def restored(grid: Grid, code: Tensor, step: Any) -> Tensor:
    """The magnitudes that codes (of the working type) stand for, in the tensor's type."""
    if grid.stochastic:
        return (code * step).to(grid.dtype).clamp_(min=grid.smallest)
    return (code + 0.5).mul_(step).to(grid.dtype)


def _within(back: Tensor, magnitude: Tensor, bound: float) -> Tensor:
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
