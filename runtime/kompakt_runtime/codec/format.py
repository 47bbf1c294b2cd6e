"""A packed tensor and its bytes: version 1.

    0  4s  b"kmpk"
    4  u8  version (1)
    5  u8  dtype (its place in DTYPES)
    6  u8  number of dimensions
    7  u8  log2 of the elements of a piece (0 for a tensor stored as it is)
    8  f64 error bound (0 for a tensor stored as it is)
   16  u64 elements stored (fewer than the shape says where a dimension has stride 0)
   24      the shape, then the strides in elements: i64 each
           a row for each piece (the last may be shorter): u32 nonzero, u32 outliers, u32 bytes of planes, u32 0, f64 step
           the pieces, as `pieces.py` describes them
   -4  u32 CRC32 of everything before

All numbers are little-endian. A tensor stored as it is has no rows: its elements follow in storage order.
"""

import ctypes
import math
import struct
import zlib
from dataclasses import dataclass
from typing import Any

import torch

from kompakt_runtime.codec.bits import unpack_bits
from kompakt_runtime.codec.pieces import NEGATIVES, PLANE_BYTES, WIDEST, Piece

Tensor = Any

MAGIC = b"kmpk"
VERSION = 1
HEAD = struct.Struct("<4sBBBBdQ")
ROW = struct.Struct("<IIIId")
CHECKSUM = struct.Struct("<I")
MOST_DIMENSIONS = 64
PIECE_BITS = range(10, 29)  # what a reader accepts: places in a piece are int32

# Only ever appended to: a byte of the format is a place in this list.
DTYPES = [
    torch.float64, torch.float32, torch.float16, torch.bfloat16,
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.complex64, torch.complex128,
]  # fmt: skip
LOSSY = frozenset(DTYPES[:4])


class CorruptPacked(ValueError):
    """Packed bytes that cannot be right; the message says what was wrong and where."""


@dataclass(frozen=True)
class Layout:
    """How the tensor lay in memory: dtype, shape, and strides in elements."""

    dtype: Any
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def item(self) -> int:
        return int(torch.empty(0, dtype=self.dtype).element_size())

    @property
    def stored(self) -> int:
        """Elements that have a place of their own: dimensions of stride 0 count once."""
        if 0 in self.shape:
            return 0
        return math.prod(size for size, stride in zip(self.shape, self.strides, strict=True) if stride)


@dataclass(frozen=True)
class Packed:
    """A compressed tensor. `body` (1-D uint8, on the tensor's device) holds the pieces; no pieces: stored as it is."""

    layout: Layout
    error_bound: float
    pieces: tuple[Piece, ...]
    body: Tensor
    piece_bits: int = 0  # log2 of the elements of all pieces but the last

    @property
    def nbytes(self) -> int:
        """Bytes of the whole: header, table, bitmap, codes, outliers, padding, checksum; equals len(to_bytes())."""
        table = 16 * len(self.layout.shape) + ROW.size * len(self.pieces)
        return HEAD.size + table + int(self.body.numel()) + CHECKSUM.size

    @property
    def outliers(self) -> int:
        """Elements stored exactly beside the codes, because no code kept the bound."""
        return sum(piece.outliers for piece in self.pieces)

    @property
    def raw(self) -> bool:
        """True if packing was no gain (or not possible) anywhere and the elements are stored as they are."""
        return all(not piece.step for piece in self.pieces)

    def to_bytes(self) -> bytes:
        """The format above; copies the body to the host."""
        layout = self.layout
        head = HEAD.pack(
            MAGIC, VERSION, DTYPES.index(layout.dtype), len(layout.shape), self.piece_bits, self.error_bound, layout.stored
        )  # fmt: skip
        table = struct.pack(f"<{2 * len(layout.shape)}q", *layout.shape, *layout.strides)
        rows = b"".join(ROW.pack(piece.nonzero, piece.outliers, piece.payload, 0, piece.step) for piece in self.pieces)
        body = self.body.cpu().contiguous()
        # Not by numpy: the containers this runs in need not have it.
        data = head + table + rows + ctypes.string_at(body.data_ptr(), body.numel())
        return data + CHECKSUM.pack(zlib.crc32(data))

    @staticmethod
    def from_bytes(data: bytes | bytearray | memoryview) -> "Packed":
        """The reverse, on the CPU. Raises CorruptPacked; nothing larger than `data` itself is allocated before it is checked."""
        view = memoryview(data).cast("B")
        _check_whole(view)
        layout, bound, bits, place = _read_layout(view)
        pieces: tuple[Piece, ...] = ()
        if bound:
            pieces, place = _read_pieces(view, place, layout.stored, 1 << bits)
        body = view[place : len(view) - CHECKSUM.size]
        wanted = sum(piece.size(layout.item) for piece in pieces) if bound else layout.stored * layout.item
        if len(body) != wanted:
            raise CorruptPacked(f"the pieces need {wanted} bytes, the data has {len(body)} from byte {place} on")
        tensor = torch.frombuffer(bytearray(body), dtype=torch.uint8) if len(body) else torch.empty(0, dtype=torch.uint8)
        _check_pieces(pieces, tensor, layout.item)
        return Packed(layout, bound, pieces, tensor, bits)


def _check_whole(view: memoryview) -> None:
    if len(view) < HEAD.size + CHECKSUM.size:
        raise CorruptPacked(f"{len(view)} bytes are too few: a header and a checksum have {HEAD.size + CHECKSUM.size}")
    magic, version = bytes(view[:4]), view[4]
    if magic != MAGIC:
        raise CorruptPacked(f"the data begins with {magic!r}, not with {MAGIC!r}: this is no packed tensor")
    if version != VERSION:
        raise CorruptPacked(f"version {version} of the format; this program reads version {VERSION}")
    said = CHECKSUM.unpack(view[-CHECKSUM.size :])[0]
    found = zlib.crc32(view[: -CHECKSUM.size])
    if said != found:
        raise CorruptPacked(f"checksum {found:08x} differs from the {said:08x} written at the end: the data is damaged")


def _read_layout(view: memoryview) -> tuple[Layout, float, int, int]:
    _, _, kind, dimensions, bits, bound, stored = HEAD.unpack_from(view)
    if kind >= len(DTYPES) or dimensions > MOST_DIMENSIONS or (bits and bits not in PIECE_BITS):
        raise CorruptPacked(f"header: dtype {kind}, {dimensions} dimensions, pieces of 2^{bits}: at least one is out of range")
    if not 0 <= bound < math.inf or (bound and DTYPES[kind] not in LOSSY) or bool(bound) != bool(bits):
        raise CorruptPacked(f"header: error bound {bound!r} for {DTYPES[kind]} in pieces of 2^{bits}")
    place = HEAD.size + 16 * dimensions
    if place + CHECKSUM.size > len(view):
        raise CorruptPacked(f"the shape ends at byte {place}, beyond the data")
    numbers = struct.unpack_from(f"<{2 * dimensions}q", view, HEAD.size)
    layout = Layout(DTYPES[kind], numbers[:dimensions], numbers[dimensions:])
    if min(numbers, default=0) < 0 or layout.stored != stored or span(layout) > 4 * max(stored, 1):
        raise CorruptPacked(f"header: shape {layout.shape} and strides {layout.strides} do not hold {stored} elements")
    return layout, bound, bits, place


def span(layout: Layout) -> int:
    """Elements from the first to the last place of the tensor in memory."""
    if 0 in layout.shape:
        return 0
    return 1 + sum((size - 1) * stride for size, stride in zip(layout.shape, layout.strides, strict=True))


def _read_pieces(view: memoryview, place: int, stored: int, size: int) -> tuple[tuple[Piece, ...], int]:
    count = -(-stored // size)
    end = place + count * ROW.size
    if end + CHECKSUM.size > len(view):
        raise CorruptPacked(f"{count} pieces need a table up to byte {end}, beyond the data")
    pieces = []
    for number in range(count):
        nonzero, outliers, payload, zero, step = ROW.unpack_from(view, place + number * ROW.size)
        elements = min(size, stored - number * size)
        if not (outliers <= nonzero <= elements and not zero and 0 <= step < math.inf and payload % PLANE_BYTES == 0):
            raise CorruptPacked(
                f"row {number} of the table: {nonzero} nonzero, {outliers} outliers, {payload} bytes, step {step!r}"
            )
        pieces.append(Piece(elements, nonzero, outliers, payload, step))
    return tuple(pieces), end


def _check_pieces(pieces: tuple[Piece, ...], body: Tensor, item: int) -> None:
    """The bitmap, widths and places agree with the counts, so that reading them never leaves a piece."""
    start = 0
    for number, piece in enumerate(pieces):
        data = body[start : start + piece.size(item)]
        start += piece.size(item)
        if piece.step and not _consistent(piece, data):
            raise CorruptPacked(f"piece {number}: bitmap, widths or outliers do not agree with its row of the table")


def _consistent(piece: Piece, data: Tensor) -> bool:
    bitmap, heads, rest = data.tensor_split([piece.bitmap, piece.bitmap + piece.blocks])
    width = (heads & (NEGATIVES - 1)).to(torch.int64)
    planes = int(width.sum()) + int((heads >> 7).sum())
    places = rest[piece.payload : piece.payload + 4 * piece.outliers].clone().view(torch.int32)
    bits = unpack_bits(bitmap)
    return (
        (not piece.bitmap or int(bits[: piece.elements].sum()) == piece.nonzero == int(bits.sum()))
        and (not heads.numel() or int(width.max()) <= WIDEST)
        and planes * PLANE_BYTES == piece.payload
        and (not piece.outliers or (int(places.min()) >= 0 and int(places.max()) < piece.nonzero))
    )
