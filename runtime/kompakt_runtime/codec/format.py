"""A packed tensor, and the bytes of one that was packed on a CPU: version 3.

    0  4s  b"kmpk"
    4  u8  version (3)
    5  u8  dtype (its place in DTYPES)
    6  u8  number of dimensions
    7  u8  mode: 0 stored as it is, 1 rounded to nearest, 2 rounded stochastically
    8  f64 error bound (0 for a tensor stored as it is)
   16  u64 elements stored (fewer than the shape says where a dimension has stride 0)
   24  u64 nonzero elements, blocks, words, outliers (32 bytes; all 0 for a tensor stored as it is)
   56      the shape, then the strides in elements: i64 each
           bitmap, table, heads, words, places, kept, as `tiles.py` describes them, each for the whole tensor
   -4  u32 CRC32 of everything before

All numbers are little-endian. The bitmap is left out when no element is zero. A tensor stored as it is has its elements
in storage order instead of the sections. How many parts the encoder worked in does not show.
"""

import ctypes
import math
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch

from kompakt_runtime.codec.bits import pack_bits, padded, unpack_bits
from kompakt_runtime.codec.channels import Channels
from kompakt_runtime.codec.grid import WIDEST, Grid, make_grid
from kompakt_runtime.codec.one_pass_layout import OnePassPart
from kompakt_runtime.codec.planes import NEGATIVES
from kompakt_runtime.codec.tiles import BLOCK, COUNT, TILE, WORDS_AT, Part, Sizes

Tensor = Any

MAGIC = b"kmpk"
VERSION = 3
HEAD = struct.Struct("<4sBBBBd5Q")
CHECKSUM = struct.Struct("<I")
MOST_DIMENSIONS = 64
RAW, NEAREST, STOCHASTIC = range(3)
# Tiles that are read at once: the working memory stays at a few megabytes.
TILES_AT_ONCE = 128

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
        return int(self.dtype.itemsize)

    @property
    def stored(self) -> int:
        """Elements that have a place of their own: dimensions of stride 0 count once."""
        if 0 in self.shape:
            return 0
        return math.prod(size for size, stride in zip(self.shape, self.strides, strict=True) if stride)


@dataclass(frozen=True)
class Packed:
    """A compressed tensor: `parts` one after another in storage order, all of one kind, or `plain`, its bytes as they are (1-D
    uint8). channels: what elements were multiplied by before."""

    layout: Layout
    error_bound: float
    stochastic: bool
    parts: tuple[Part | OnePassPart, ...]
    plain: Tensor = None
    device: Any = None
    channels: Channels | None = None

    @property
    def grid(self) -> Grid:
        return make_grid(self.layout.dtype, self.error_bound, self.stochastic)

    @property
    def nbytes(self) -> int:
        """Bytes of the whole: header, bitmap, codes, outliers, padding, unused room, checksum; at least len(to_bytes())."""
        held = int(self.plain.numel()) if self.raw else sum(part.nbytes for part in self.parts)
        if self._mixed:
            held += sum(-(-part.elements // 8) for part in self._tiles if part.bitmap is None)
        held += len(self.channels.depths) if self.channels is not None else 0
        return HEAD.size + 16 * len(self.layout.shape) + held + CHECKSUM.size

    @property
    def _mixed(self) -> bool:
        return len({part.bitmap is None for part in self._tiles}) > 1

    @property
    def _tiles(self) -> list[Part]:
        return [part for part in self.parts if isinstance(part, Part)]

    @property
    def sections(self) -> list[Tensor]:
        """All tensors that grow with the elements."""
        return [self.plain] if self.raw else [section for part in self.parts for section in part.sections]

    def filled(self, sections: Iterator[Tensor]) -> "Packed":
        """The same with these tensors in the places of its own."""
        if self.raw:
            return replace(self, plain=next(sections))
        return replace(self, parts=tuple(part.filled(sections) for part in self.parts))

    @property
    def sizes(self) -> Sizes:
        """The counts of all parts together, of a tensor packed on a CPU."""
        every = [part.sizes for part in self._tiles]
        return Sizes(*(sum(getattr(sizes, name) for sizes in every) for name in ("nonzero", "blocks", "words", "outliers")))

    @property
    def outliers(self) -> int:
        """Elements stored exactly beside the codes, because no code kept the bound."""
        return sum(part.outliers for part in self.parts)

    @property
    def raw(self) -> bool:
        """True if packing was no gain (or not possible) and the elements are stored as they are."""
        return self.plain is not None

    def to_bytes(self) -> bytes:
        """The format above. Raises TypeError for a tensor packed by a GPU's kernels, or with bounds by channel."""
        if self.channels is not None:
            raise TypeError("a tensor whose channels have bounds of their own has no bytes for elsewhere")
        if len(self._tiles) < len(self.parts):
            raise TypeError("what kernels packed on a GPU has no bytes for elsewhere: decode it, and encode that on the CPU")
        layout, sizes = self.layout, self.sizes
        mode = RAW if self.raw else STOCHASTIC if self.stochastic else NEAREST
        counts = (sizes.nonzero, sizes.blocks, sizes.words, sizes.outliers)
        kind = DTYPES.index(layout.dtype)
        head = HEAD.pack(MAGIC, VERSION, kind, len(layout.shape), mode, self.error_bound, layout.stored, *counts)
        table = struct.pack(f"<{2 * len(layout.shape)}q", *layout.shape, *layout.strides)
        sections = [self.plain] if self.raw else self._sections()
        data = b"".join([head, table, *(_bytes(section) for section in sections)])
        return data + CHECKSUM.pack(zlib.crc32(data))

    def _sections(self) -> list[Tensor]:
        parts = self._tiles
        bitmaps = [] if self.sizes.nonzero == self.layout.stored else [_bitmap(part) for part in parts]
        places, block = [], 0
        for part in parts:
            places.append(part.places[: part.sizes.outliers] + block * BLOCK)
            block += part.sizes.blocks
        return [
            *bitmaps,
            *(part.table for part in parts),
            *(part.heads[: part.sizes.blocks] for part in parts),
            *(part.words[: part.sizes.words] for part in parts),
            *places,
            *(part.kept[: part.sizes.outliers] for part in parts),
        ]

    @staticmethod
    def from_bytes(data: bytes | bytearray | memoryview) -> "Packed":
        """The reverse, on the CPU. Raises CorruptPacked; nothing larger than `data` itself is allocated before it is checked."""
        view = memoryview(data).cast("B")
        _check_whole(view)
        layout, mode, bound, sizes, place = _read_layout(view)
        body = view[place : len(view) - CHECKSUM.size]
        lengths = _lengths(layout, sizes) if mode else [layout.stored * layout.item]
        if len(body) != sum(lengths):
            raise CorruptPacked(f"the sections need {sum(lengths)} bytes, the data has {len(body)} from byte {place} on")
        cpu = torch.device("cpu")
        if not mode:
            return Packed(layout, 0.0, False, (), _tensor(body, torch.uint8), cpu)
        parts = _read_parts(layout, sizes, body, lengths)
        return Packed(layout, bound, mode == STOCHASTIC, parts, None, cpu)


def _bytes(section: Tensor) -> bytes:
    # Not by numpy: the containers this runs in need not have it.
    host = section.detach().cpu().contiguous()
    return ctypes.string_at(host.data_ptr(), host.numel() * host.element_size()) if host.numel() else b""


def _bitmap(part: Part) -> Tensor:
    if part.bitmap is not None:
        return part.bitmap
    return pack_bits(padded(part.table.new_ones(part.elements, dtype=torch.uint8), 8))


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


def _read_layout(view: memoryview) -> tuple[Layout, int, float, Sizes, int]:
    _, _, kind, dimensions, mode, bound, stored, *counts = HEAD.unpack_from(view)
    if kind >= len(DTYPES) or dimensions > MOST_DIMENSIONS or mode > STOCHASTIC:
        raise CorruptPacked(f"header: dtype {kind}, {dimensions} dimensions, mode {mode}: at least one is out of range")
    usable = mode != RAW and DTYPES[kind] in LOSSY and 0 < bound < math.inf and make_grid(DTYPES[kind], bound, mode == 2).usable
    if not (usable or (mode == RAW and bound == 0 and not any(counts))):
        raise CorruptPacked(f"header: mode {mode}, error bound {bound!r} and counts {counts} for {DTYPES[kind]}")
    place = HEAD.size + 16 * dimensions
    if place + CHECKSUM.size > len(view):
        raise CorruptPacked(f"the shape ends at byte {place}, beyond the data")
    numbers = struct.unpack_from(f"<{2 * dimensions}q", view, HEAD.size)
    layout = Layout(DTYPES[kind], numbers[:dimensions], numbers[dimensions:])
    if math.prod(layout.shape) * layout.item >= 1 << 63:
        raise CorruptPacked(f"header: shape {layout.shape} of {layout.dtype} has more bytes than any tensor may")
    if min(numbers, default=0) < 0 or layout.stored != stored or span(layout) > 4 * max(stored, 1):
        raise CorruptPacked(f"header: shape {layout.shape} and strides {layout.strides} do not hold {stored} elements")
    sizes = Sizes(*counts)
    if not (sizes.outliers <= sizes.nonzero <= stored and sizes.blocks <= sizes.nonzero and sizes.words <= 23 * sizes.blocks):
        raise CorruptPacked(f"header: {sizes} for {stored} elements")
    return layout, mode, bound, sizes, place


def span(layout: Layout) -> int:
    """Elements from the first to the last place of the tensor in memory."""
    if 0 in layout.shape:
        return 0
    return 1 + sum((size - 1) * stride for size, stride in zip(layout.shape, layout.strides, strict=True))


def _lengths(layout: Layout, sizes: Sizes) -> list[int]:
    """Bytes of the sections."""
    bitmap = 0 if sizes.nonzero == layout.stored else -(-layout.stored // 8)
    tiles = -(-layout.stored // TILE)
    return [bitmap, 4 * tiles, sizes.blocks, 4 * sizes.words, 8 * sizes.outliers, layout.item * sizes.outliers]


def _tensor(data: memoryview, dtype: Any) -> Tensor:
    # A copy of its own: the data may begin at any address.
    return torch.frombuffer(bytearray(data), dtype=dtype) if len(data) else torch.empty(0, dtype=dtype)


def _read_parts(layout: Layout, sizes: Sizes, body: memoryview, lengths: list[int]) -> tuple[Part, ...]:
    """Checks that all sections agree, then cuts them into parts of a bounded number of tiles."""
    sections, start = [], 0
    kinds = (torch.uint8, torch.int32, torch.uint8, torch.int32, torch.int64, layout.dtype)
    for length, kind in zip(lengths, kinds, strict=True):
        sections.append(_tensor(body[start : start + length], kind))
        start += length
    bitmap, table, heads, words, places, kept = sections
    counts = (table & COUNT).to(torch.int64)
    blocks = ((counts + (BLOCK - 1)) >> 5).cumsum(0)
    used = (table >> WORDS_AT).to(torch.int64).cumsum(0)
    if table.numel() and not (
        int(table.min()) >= 0
        and int(counts.sum()) == sizes.nonzero
        and int(blocks[-1]) == sizes.blocks
        and int(used[-1]) == sizes.words
    ):
        raise CorruptPacked("the table of tiles does not agree with the header")
    if sizes.outliers and not (
        int(places[0]) >= 0 and int(places[-1]) < sizes.blocks * BLOCK and bool((places.diff() > 0).all())
    ):
        raise CorruptPacked("the outliers' places do not ascend, or leave the slots there are")
    parts: list[Part] = []
    block = word = outlier = 0
    for tile in range(0, table.numel(), TILES_AT_ONCE):
        rows = table[tile : tile + TILES_AT_ONCE]
        elements = min(layout.stored - tile * TILE, TILES_AT_ONCE * TILE)
        last = tile + rows.numel() - 1
        next_block, next_word = int(blocks[last]), int(used[last])
        next_outlier = int(torch.searchsorted(places, next_block * BLOCK))
        own = Sizes(int(counts[tile : last + 1].sum()), next_block - block, next_word - word, next_outlier - outlier)
        part = Part(
            elements,
            bitmap[tile * (TILE // 8) : tile * (TILE // 8) + -(-elements // 8)] if bitmap.numel() else None,
            rows,
            heads[block:next_block],
            words[word:next_word],
            places[outlier:next_outlier] - block * BLOCK,
            kept[outlier:next_outlier],
            own,
        )
        _check_part(part, tile)
        parts.append(part)
        block, word, outlier = next_block, next_word, next_outlier
    return tuple(parts)


def _check_part(part: Part, tile: int) -> None:
    """The bitmap, counts and widths agree tile by tile, so that reading them never leaves a section."""
    counts = (part.table & COUNT).to(torch.int64)
    if part.bitmap is None:
        bits = padded(torch.ones(part.elements, dtype=torch.uint8), TILE)
        stray = 0
    else:
        bits = unpack_bits(part.bitmap)
        stray = int(bits[part.elements :].sum())
        bits = padded(bits[: part.elements], TILE)
    width = (part.heads & (NEGATIVES - 1)).to(torch.int64)
    ends = torch.cat([width.new_zeros(1), (width + (part.heads >> 7)).cumsum(0)])
    blocks = (counts + (BLOCK - 1)) >> 5
    last = blocks.cumsum(0)
    words = (part.table >> WORDS_AT).to(torch.int64)
    if stray or not (
        torch.equal(bits.view(-1, TILE).sum(dim=1), counts)
        and (not width.numel() or int(width.max()) <= WIDEST)
        and torch.equal(ends[last] - ends[last - blocks], words)
    ):
        raise CorruptPacked(f"tiles {tile} to {tile + counts.numel() - 1}: bitmap, counts and widths do not agree")
