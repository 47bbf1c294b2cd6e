"""Triton functions that turn elements into codes and back, for `tile_kernels.py`.

Floating-point operations are those of `grid.py` and `short.py` in the same order, each rounded once: the kernels are compiled
without fusing multiplications and additions, and divide no such numbers.
"""

# ruff: noqa: SIM108
# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"
# An `if` over a constexpr takes one branch at compile time; an expression would compile both.
# Arguments of kernels have no Python types.
import triton
import triton.language as tl

from kompakt_runtime.codec.grid import DRAW_BITS, WIDEST

# KIND: of the elements' type, 0 float32, 1 float16, 2 bfloat16. Elements travel as bit patterns.
DRAW_SHIFT = tl.constexpr(32 - DRAW_BITS)
CODES = tl.constexpr(1 << WIDEST)
DRAWS = tl.constexpr(float(1 << DRAW_BITS))


@triton.jit
def magnitudes(bits, KIND: tl.constexpr):
    """Bit patterns -> the numbers as float32."""
    if KIND == 0:
        return bits.to(tl.float32, bitcast=True)
    if KIND == 1:
        return bits.to(tl.int16).to(tl.float16, bitcast=True).to(tl.float32)
    return (bits << 16).to(tl.float32, bitcast=True)


@triton.jit
def _rounded(value, KIND: tl.constexpr):
    """float32 magnitudes, rounded into the tensor's type; as bit patterns."""
    if KIND == 0:
        bits = value.to(tl.int32, bitcast=True)
    elif KIND == 1:
        bits = value.to(tl.float16).to(tl.int16, bitcast=True).to(tl.int32)
    else:
        # To nearest even by whole numbers: the interpreter's conversion cuts off instead.
        bits = value.to(tl.int32, bitcast=True)
        bits = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return bits


@triton.jit
def _rung(pattern, code, start, first, size):
    """Codes of patterns from `start` on, where bins of `size` begin with code `first`; the others' as they are."""
    # The product and the shift divide what is below 1024 by sizes to 17.
    return tl.where(pattern >= start, first + (((pattern - start) * (65536 // size + 1)) >> 16), code)


@triton.jit
def _coded_by_neighbours(pattern, code, edge, below, size0, size1, size2, size3, KIND: tl.constexpr):
    """The codes of 16-bit patterns from `edge` on, as short.tables gives them; `code` where it is lower."""
    numbers = 1024 if KIND == 1 else 128
    code = _rung(pattern, code, edge, below, size0)
    start, first = edge + numbers, below + (numbers + size0 - 1) // size0
    code = _rung(pattern, code, start, first, size1)
    start, first = start + numbers, first + (numbers + size1 - 1) // size1
    code = _rung(pattern, code, start, first, size2)
    start, first = start + numbers, first + (numbers + size2 - 1) // size2
    code = _rung(pattern, code, start, first, size3)
    start, first = start + numbers, first + (numbers + size3 - 1) // size3
    return tl.where(pattern >= start, first + pattern - start, code)


@triton.jit
def _middle(code, pattern, start, first, size, numbers):
    """Patterns of the middles of bins of `size` from code `first` on; the others' as they are."""
    here = start + (code - first) * size + size // 2
    return tl.where(code >= first, tl.minimum(here, start + numbers - 1), pattern)


@triton.jit
def _restored_by_neighbours(code, pattern, edge, below, size0, size1, size2, size3, KIND: tl.constexpr):
    """The patterns that codes stand for; `pattern`: those of the equal bins."""
    numbers = 1024 if KIND == 1 else 128
    pattern = _middle(code, tl.minimum(pattern, tl.maximum(edge - 1, 0)), edge, below, size0, numbers)
    start, first = edge + numbers, below + (numbers + size0 - 1) // size0
    pattern = _middle(code, pattern, start, first, size1, numbers)
    start, first = start + numbers, first + (numbers + size1 - 1) // size1
    pattern = _middle(code, pattern, start, first, size2, numbers)
    start, first = start + numbers, first + (numbers + size2 - 1) // size2
    pattern = _middle(code, pattern, start, first, size3, numbers)
    start, first = start + numbers, first + (numbers + size3 - 1) // size3
    return tl.minimum(tl.where(code >= first, start + code - first, pattern), 0x7FFF)


@triton.jit
def _mix(h):
    """grid.mix on uint32."""
    h = h ^ (h >> 16)
    h = h * 0x7FEB352D
    h = h ^ (h >> 15)
    h = h * 0x846CA68B
    return h ^ (h >> 16)


@triton.jit
def _draw(number, first_key, second_key):
    """grid.draw for element numbers (int64); the keys are int32 of the same bits."""
    low = (number & 0xFFFFFFFF).to(tl.uint32)
    high = (number >> 32).to(tl.uint32)
    mixed = _mix(_mix(low ^ first_key.to(tl.uint32, bitcast=True)) ^ high ^ second_key.to(tl.uint32, bitcast=True))
    return (mixed >> DRAW_SHIFT).to(tl.float32)


@triton.jit
def _within(back, magnitude, bound):
    """grid.within."""
    difference = back - magnitude
    shadow = difference - back
    error = (back - (difference - shadow)) - (magnitude + shadow)
    size = tl.abs(difference)
    outward = tl.where(difference >= 0, error, -error)
    return (size < bound) | ((size == bound) & (outward <= 0))


@triton.jit
def restored(code, step, smallest, edge, below, size0, size1, size2, size3, KIND: tl.constexpr, STOCHASTIC: tl.constexpr):
    """Codes (float32) -> the magnitudes they stand for, in the tensor's type; as bit patterns."""
    if STOCHASTIC:
        value = code * step
        if KIND == 1:
            value = tl.maximum(value.to(tl.float16).to(tl.float32), smallest)
        else:
            value = tl.maximum(value, smallest)
        bits = _rounded(value, KIND)
    else:
        bits = _rounded((code + 0.5) * step, KIND)
        if KIND != 0:
            bits = _restored_by_neighbours(code.to(tl.int32), bits, edge, below, size0, size1, size2, size3, KIND)
    return bits


@triton.jit
def coded(
    bits, magnitude, number, bound, step, inverse, smallest, first_key, second_key, edge, below, size0, size1, size2, size3,
    KIND: tl.constexpr, STOCHASTIC: tl.constexpr,
):  # fmt: skip
    """Codes (float32), and whether each keeps the bound. `number`: of the elements in the whole tensor."""
    scaled = magnitude * inverse
    code = tl.floor(scaled)
    if STOCHASTIC:
        share = (scaled - code) * DRAWS
        code = tl.where(share > _draw(number, first_key, second_key), code + 1.0, code)
    elif KIND != 0:
        lower = tl.minimum(code, below.to(tl.float32)).to(tl.int32)
        code = _coded_by_neighbours(bits & 0x7FFF, lower, edge, below, size0, size1, size2, size3, KIND).to(tl.float32)
    back = magnitudes(restored(code, step, smallest, edge, below, size0, size1, size2, size3, KIND, STOCHASTIC), KIND)
    return code, _within(back, magnitude, bound) & (code < CODES) & (back > 0)
