"""Steps of a one-pass copy: for each number of magnitude bits how wide a bin may be, and from which number on codes run out.

A magnitude m has the code floor(m / step) + 1 and comes back as the middle of its bin; 0 is the code of zero alone. The
quotient is a fixed-point number with eight fraction bits, made by adding 2^15, so no conversion instruction is needed:

    code = (bits(m * inverse + 32769) >> 8) & 0xFFFF, or 0 for zero

Numbers of 16-bit types times an inverse of few digits are exact, so it does not matter there whether a GPU fuses the two
operations. What a code stands for is rounded into the type: how much of the bound that takes depends on how large the
numbers are, hence on how many bits there are. So each number of bits has its own step, found by trying all numbers of the type.
"""

import functools
import math
import struct
from dataclasses import dataclass
from typing import Any

import torch

from kompakt_runtime.codec.grid import round_down

Tensor = Any

MOST_BITS = 13  # of a magnitude's code; with a sign 14, and 15 are exact in the fixed-point number
ROWS = 16  # of the table the kernels read
ONE = 32768.0
BLUR = 1 / 64  # what rounding the quotient and the middle may cost, as a share of a step; see the decision
DIGITS = {torch.float16: 11, torch.bfloat16: 8, torch.float32: 24}  # of a number, the hidden one included
TRIES, FINENESS = 72, 64  # steps tried: 2^(-j / FINENESS) times the widest
KEPT = 7  # binary digits of a bound: at most 1.6 % of it is given away, and hundreds of layers share a few dozen tables
FAR = 64  # powers of two within which no bfloat16 that matters is subnormal or infinite


@dataclass(frozen=True)
class Scale:
    """inverse, step: float32 numbers; first_outside: the bit pattern (no sign) from which on a number has no code."""

    inverse: float
    step: float
    first_outside: int


def inverse_of(dtype: Any, step: float) -> float:
    """1 / step rounded up to so few digits that a product with a number of a 16-bit type is exact in float32."""
    digits = 24 - DIGITS[dtype] if dtype != torch.float32 else 24
    share, exponent = math.frexp(1 / step)
    return math.ldexp(math.ceil(math.ldexp(share, digits)), exponent - digits)


def pattern(dtype: Any, value: float) -> int:
    """Of the largest number of the type that is at most `value`; at most infinity's."""
    bits = struct.unpack("<I", struct.pack("<f", round_down(min(value, 3e38), torch.float32)))[0]
    if dtype == torch.float32:
        return int(bits)
    if dtype == torch.bfloat16:
        return int(bits) >> 16
    near = torch.tensor(min(value, 65504.0), dtype=torch.float64).to(torch.float16)
    return int(near.view(torch.int16)) - int(float(near) > value)


def codes(magnitude: Tensor, inverse: Tensor | float) -> Tensor:
    """Of float32 magnitudes (int32); whatever where there is none."""
    fixed = magnitude * inverse + (ONE + 1)
    found = (fixed.view(torch.int32) >> 8) & 0xFFFF
    return found * (magnitude != 0)


def middles(code: Tensor, step: Tensor | float, dtype: Any) -> Tensor:
    """The magnitudes that codes (int32) stand for, in the type."""
    value = ((code << 8) | 0x47000000).view(torch.float32) - (ONE + 0.5)
    value = value.clamp_(min=0) * step
    if dtype != torch.bfloat16:
        return value.to(dtype)
    # Half a unit up, then cut: three whole-number operations for two elements where a conversion instruction would be slow.
    return ((value.view(torch.int32) + 0x8000) >> 16).to(torch.int16).view(torch.bfloat16)


def scales(dtype: Any, bound: float) -> tuple[Scale, ...]:
    """One for each number of bits from 1 to MOST_BITS, the last ones alike where more bits cannot be used; () where none can."""
    share, exponent = math.frexp(bound)
    share = math.ldexp(math.floor(math.ldexp(share, KEPT)), -KEPT)
    if dtype == torch.bfloat16 and abs(exponent) <= FAR:
        return tuple(_times_two_to(exponent, row) for row in _scales(dtype, share))
    return _scales(dtype, math.ldexp(share, exponent))


def _times_two_to(exponent: int, row: Scale) -> Scale:
    """Of bfloat16, whose numbers lie alike in all powers of two, and have 7 bits below the exponent."""
    return Scale(math.ldexp(row.inverse, -exponent), math.ldexp(row.step, exponent), row.first_outside + (exponent << 7))


@functools.lru_cache(4096)
def _scales(dtype: Any, bound: float) -> tuple[Scale, ...]:
    if dtype == torch.float32:
        inverse = inverse_of(dtype, 2 * bound * (1 - BLUR))
        return tuple(_scale(dtype, inverse, bits) for bits in range(1, MOST_BITS + 1))
    found: list[Scale] = []
    inverses = _inverses(dtype, bound)
    tried = list(zip(inverses, _first_wrong(dtype, inverses, bound), strict=True))
    for bits in range(1, MOST_BITS + 1):
        good = (row for inverse, wrong in tried if (row := _scale(dtype, inverse, bits)).first_outside <= wrong)
        best = next(good, None)
        if best is None and not found:
            return ()
        farther = best is not None and (not found or best.first_outside > found[-1].first_outside)
        found.append(best if best is not None and farther else found[-1])
    return tuple(found)


def _inverses(dtype: Any, bound: float) -> list[float]:
    return [inverse_of(dtype, 2 * bound * (1 - BLUR) * 2 ** (-j / FINENESS)) for j in range(TRIES)]


def _scale(dtype: Any, inverse: float, bits: int) -> Scale:
    step = _step(inverse)
    # A little below the last bin's end, so that rounding never gives a code that is not there.
    return Scale(inverse, step, pattern(dtype, (2**bits - 1 - BLUR) * step))


def _step(inverse: float) -> float:
    return float(struct.unpack("<f", struct.pack("<f", 1 / inverse))[0])


def _first_wrong(dtype: Any, inverses: list[float], bound: float) -> list[int]:
    """For each inverse the first bit pattern of a 16-bit type whose number does not come back within the bound, or as zero; the
    first that no number of bits gives a code where there is none before.

    Numbers below a quarter of a step all come back as the first bin's middle: the smallest one is farthest from it.
    """
    steps = torch.tensor([_step(inverse) for inverse in inverses]).unsqueeze(1)
    end = _scale(dtype, min(inverses), MOST_BITS).first_outside
    begin = max(1, pattern(dtype, float(steps.min()) / 4))
    patterns = torch.arange(min(begin, end), end, dtype=torch.int32)
    patterns = torch.cat([patterns.new_ones(1), patterns])
    magnitude = patterns.to(torch.int16).view(dtype).to(torch.float32)
    back = middles(codes(magnitude, torch.tensor(inverses).unsqueeze(1)), steps, dtype).to(torch.float32)
    wrong = ~(((back - magnitude).abs_() <= round_down(bound, torch.float32)) & (back > 0))
    places = torch.where(wrong.any(1), wrong.to(torch.uint8).argmax(1), len(patterns))
    return list(torch.cat([patterns, patterns.new_full((1,), end)])[places].tolist())


def table(dtype: Any, rows: tuple[Scale, ...], device: Any) -> Tensor:
    """int32, four numbers for each number of bits 0 to 15: first pattern without a code, bits of inverse and step, 0."""
    numbers = [0, 0, 0, 0]
    beyond = (1 << 31) - 1 if dtype == torch.float32 else 1 << 15  # hardly a number is as large: a search ends there
    for row in rows:
        inverse, step = struct.unpack("<2i", struct.pack("<2f", row.inverse, row.step))
        numbers += [row.first_outside, inverse, step, 0]
    numbers += (ROWS * 4 - len(numbers)) // 4 * [beyond, 0, 0, 0]
    # So few bytes are copied aside before the call returns: waiting for the device is as needless as pinning them, which is slow.
    return torch.tensor(numbers, dtype=torch.int32).to(device, non_blocking=True)
