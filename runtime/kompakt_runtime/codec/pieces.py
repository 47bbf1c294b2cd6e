"""One piece (a power of two of a tensor's elements, in storage order) as bytes, with a strict error bound.

A packed piece holds, one after another:

1. a bitmap, one bit an element: is it not zero (left out when none is zero);
2. one byte for each block of 32 nonzero elements: the code width in bits, plus 128 where the block has negatives;
3. for each block its codes as bit planes of 4 bytes, lowest bit first, then the plane of signs where there is one;
4. the outliers: their places among the nonzero elements (int32), then their values as they are.

An element x that is not zero has the code k = floor(|x| / step) and comes back as sign(x) (k + 1/2) step, rounded into
the tensor's own type: the middle of its bin, so zero stays zero, signs hold, and the error is at most step / 2 plus the
rounding. Whatever then misses the bound (judged exactly, as real numbers), is not finite or loses its sign, is an outlier.
This is the zero- and sign-exact form of uniform quantisation; Jin et al., COMET (arXiv 2111.09562), restore zeros for the
same reason: errors on zeros after a ReLU would reach gradients that are exact without them.
"""

import math
import struct
from dataclasses import dataclass
from typing import Any

import torch

from kompakt_runtime.codec.bits import pack_bits, padded, unpack_bits

Tensor = Any

SMALLEST, LARGEST = 16, 22  # log2 of the elements of a piece, as this encoder chooses them
BLOCK = 32
PLANE_BYTES = BLOCK // 8
WIDEST = 22  # bits of a code; k + 1/2 is then exact in float32
NEGATIVES = 128


@dataclass(frozen=True)
class Piece:
    """What the reader of a piece must know: `elements` and `nonzero` are counts, `step` the bin width (0: stored as it is)."""

    elements: int
    nonzero: int
    outliers: int
    payload: int  # bytes of part 3
    step: float

    @property
    def bitmap(self) -> int:
        """Bytes of part 1."""
        return 0 if self.nonzero == self.elements else -(-self.elements // 8)

    @property
    def blocks(self) -> int:
        return -(-self.nonzero // BLOCK)

    def size(self, item: int) -> int:
        """Bytes of the whole piece; `item` is the size of one element of the tensor in bytes."""
        if not self.step:
            return self.elements * item
        return self.bitmap + self.blocks + self.payload + self.outliers * (4 + item)


def piece_bits(elements: int) -> int:
    """log2 of the piece size for a tensor: a 64th of it, so that working memory (about 40 bytes an element of a piece)
    stays small beside it; at least 64 Ki elements, so that calls are few."""
    return min(max(elements.bit_length() - 6, SMALLEST), LARGEST)


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


def encode_piece(x: Tensor, bound: float) -> tuple[Piece, list[Tensor]]:
    """`x` (1-D, contiguous, floating) -> the piece and its bytes as uint8 tensors in order; as it is where packing is no gain."""
    raw = Piece(x.numel(), x.numel(), 0, 0, 0.0)
    mask = x != 0
    values = x.masked_select(mask)
    codes, outside, step = _quantise(values, bound)
    if not step:
        return raw, [x.view(torch.uint8)]
    heads, planes = _planes(codes, values < 0)
    outliers = int(outside.sum())
    piece = Piece(x.numel(), values.numel(), outliers, planes.numel(), step)
    if piece.size(x.element_size()) >= raw.size(x.element_size()):
        return raw, [x.view(torch.uint8)]
    parts = [pack_bits(padded(mask.view(torch.uint8), 8))] if piece.bitmap else []
    parts += [heads, planes]
    if outliers:
        places = outside.nonzero().view(-1).to(torch.int32)
        parts += [places.view(torch.uint8), values.masked_select(outside).view(torch.uint8)]
    return piece, parts


def _quantise(values: Tensor, bound: float) -> tuple[Tensor, Tensor, float]:
    """Codes (int32, 0 for outliers), which elements are outliers, and the step (0: cannot be packed)."""
    work = work_dtype(values.dtype)
    magnitude = values.to(work).abs()
    step = _step(magnitude, values.dtype, bound)
    inverse = 1 / step if step else math.inf
    if not inverse < torch.finfo(work).max:
        return magnitude, magnitude, 0.0
    code = (magnitude * inverse).floor_()
    fits = code < (1 << WIDEST)  # false for NaN and infinity too
    middle = (code + 0.5).mul_(step).to(values.dtype).to(work)
    inside = _within(middle, magnitude, bound) & fits & (middle > 0)
    # Whatever integer became of what does not fit, times 0. (torch.where is ten times slower on CPUs.)
    return code.to(torch.int32).mul_(inside), ~inside, step


def _step(magnitude: Tensor, dtype: Any, bound: float) -> float:
    """Width of a bin: twice the bound, less the spacing of 16-bit numbers at the piece's largest element.

    With step = 2 bound - min(spacing, bound) the middle of a bin misses the bound by no rounding: either the spacing is
    at most the bound and step/2 + spacing/2 <= bound, or an element's spacing exceeds the step and the rounded middle
    is the element itself. float32 and float64 are so fine that the few misses are stored as outliers instead.
    """
    if torch.finfo(dtype).bits > 16 or not magnitude.numel():
        return 2 * bound
    largest = magnitude.nan_to_num(nan=0.0, posinf=0.0).max()
    spacing = float(torch.ldexp(torch.ones_like(largest), torch.frexp(largest)[1] - 1)) * torch.finfo(dtype).eps
    return round_down(2 * bound - min(spacing, bound), torch.float32)


def _within(middle: Tensor, magnitude: Tensor, bound: float) -> Tensor:
    """|middle - magnitude| <= bound as real numbers: the difference with its exact rounding error (Knuth's two-sum)."""
    difference = middle - magnitude
    shadow = difference - middle
    error = (middle - (difference - shadow)) - (magnitude + shadow)
    size = difference.abs()
    return (size < bound) | ((size == bound) & (error * difference.sign() <= 0))


def _planes(codes: Tensor, negative: Tensor) -> tuple[Tensor, Tensor]:
    """Head bytes and bit planes (uint8) of all blocks."""
    blocks = padded(codes, BLOCK).view(-1, BLOCK)
    if not blocks.numel():
        empty = codes.new_empty(0, dtype=torch.uint8)
        return empty, empty
    signs = pack_bits(padded(negative.view(torch.uint8), BLOCK)).view(torch.int32)
    signed = (signs != 0).to(torch.int32)
    width = torch.frexp(blocks.amax(dim=1).to(torch.float32))[1].to(torch.int32)  # bit length, exact below 2^24
    starts, total = _starts(width + signed)
    words = codes.new_empty(total + 1)  # the last place takes the planes that a block does not have
    widest = int(width.max())
    if widest <= 8:
        blocks = blocks.to(torch.uint8)
    for bit in range(widest):
        plane = ((blocks >> bit) & 1).to(torch.uint8).view(-1)
        words[torch.where(width > bit, starts + bit, total)] = pack_bits(plane).view(torch.int32)
    words[torch.where(signed > 0, starts + width, total)] = signs
    return (width + NEGATIVES * signed).to(torch.uint8), words[:total].view(torch.uint8)


def _starts(planes: Tensor) -> tuple[Tensor, int]:
    """Where each block's planes begin, and how many there are in all."""
    ends = planes.to(torch.int64).cumsum(0)
    return ends - planes, int(ends[-1])


def decode_piece(piece: Piece, data: Tensor, out: Tensor) -> None:
    """Writes the piece's elements into `out` (1-D, `piece.elements` long); `data` is the piece's bytes (uint8)."""
    if not piece.step:
        out.view(torch.uint8).copy_(data)
        return
    item = out.element_size()
    bitmap, heads, planes, places, kept = data.split(
        [piece.bitmap, piece.blocks, piece.payload, 4 * piece.outliers, item * piece.outliers]
    )
    values = _values(piece, heads, planes, out.dtype)
    if piece.outliers:
        values[_aligned(places, torch.int32).to(torch.int64)] = _aligned(kept, out.dtype)
    if piece.bitmap:
        mask = unpack_bits(bitmap)[: piece.elements].view(torch.bool)
        out.zero_().masked_scatter_(mask, values)
    else:
        out.copy_(values)


def _aligned(data: Tensor, dtype: Any) -> Tensor:
    """Bytes read as another type; copied first, because they may begin at any address."""
    return data.clone().view(dtype)


def _values(piece: Piece, heads: Tensor, planes: Tensor, dtype: Any) -> Tensor:
    """The nonzero elements in order, outliers still wrong."""
    if not piece.nonzero:
        return heads.new_empty(0, dtype=dtype)
    width = (heads & (NEGATIVES - 1)).to(torch.int32)
    signed = heads >> 7
    starts, total = _starts(width + signed)
    words = torch.zeros(total + 1, dtype=torch.int32, device=heads.device)  # the last: planes that a block does not have
    words[:total].view(torch.uint8).copy_(planes)
    widest = int(width.max())
    kind = torch.uint8 if widest <= 8 else torch.int32
    codes = torch.zeros(piece.blocks * BLOCK, dtype=kind, device=heads.device)
    for bit in range(widest):
        plane = words[torch.where(width > bit, starts + bit, total)]
        codes |= unpack_bits(plane.view(torch.uint8)).to(kind) << bit
    values = codes.to(work_dtype(dtype)).add_(0.5).mul_(piece.step).to(dtype)[: piece.nonzero]
    if int(signed.max()):
        negative = words[torch.where(signed > 0, starts + width, total)]
        flip = unpack_bits(negative.view(torch.uint8))[: piece.nonzero]
        values = values * (1 - 2 * flip.to(values.dtype))
    return values
