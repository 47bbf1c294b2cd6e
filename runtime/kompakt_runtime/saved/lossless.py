"""Small exact stand-ins for what a backward pass reads of a saved tensor: one bit an element, or the place inside a window.

Each has `nbytes` and `decode() -> Tensor`, a flat tensor of the type of the storage that it stands for.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch

from kompakt_runtime.codec.bits import pack_bits, padded, unpack_bits

Tensor = Any

# Elements worked on at a time. Temporaries take about 4 bytes an element for masks and 40 for indices, of which an eighth as many
# are taken: a quarter of a megabyte on CPUs. GPUs want few calls.
PIECE = {"cpu": 1 << 16, "cuda": 1 << 26}
NIBBLE = 16  # cells that four bits can number
LOOK = 64  # elements looked at before a whole tensor is
INTEGERS = {2: torch.int16, 4: torch.int32, 8: torch.int64}


@dataclass(frozen=True)
class Mask:
    """One bit an element; decodes to `value` (a 0-dim tensor) where it is set, else to zero."""

    bits: Tensor
    elements: int
    value: Tensor

    @property
    def nbytes(self) -> int:
        return int(self.bits.numel()) + int(self.value.element_size())

    def decode(self) -> Tensor:
        out = self.bits.new_empty(self.elements, dtype=self.value.dtype)
        size = _piece(self.bits)
        for start in range(0, self.elements, size):
            piece = out[start : start + size]
            bits = unpack_bits(self.bits[start // 8 : (start + size) // 8])[: piece.numel()]
            if out.dtype == torch.bool:
                piece.copy_(bits)
            else:
                torch.mul(bits, self.value, out=piece)  # 1 * value and 0 * value are exact in every type
        return out


def sign_mask(flat: Tensor) -> Mask:
    """What the backward pass of a ReLU reads of its output: where it is not zero or less. NaN counts as above zero, as there.

    flat: 1-D, contiguous, floating point.
    """
    return Mask(_packed(flat, lambda piece: (piece <= 0).logical_not_()), flat.numel(), flat.new_ones(()))


def bool_mask(flat: Tensor) -> Mask:
    """A tensor of type bool, an eighth of its size."""
    return Mask(_packed(flat, lambda piece: piece), flat.numel(), flat.new_ones(()))


def two_valued(flat: Tensor) -> Mask | None:
    """The mask of a tensor that holds zero and one other finite number, bit for bit; None for any other.

    Dropout on CPUs saves its mask times 1 / (1 - p) in the type of its input. Reads values back: not for GPUs, where dropout
    saves bools.
    """
    if flat.is_cuda or not flat.is_floating_point() or flat.element_size() not in INTEGERS or not flat.numel():
        return None
    words = flat.view(INTEGERS[flat.element_size()])
    peak = words[:LOOK].max()
    if not _only(words[:LOOK], peak) or peak <= 0:
        return None
    value = peak.view(flat.dtype)
    if not value.isfinite():
        return None
    size = _piece(flat)
    if not all(_only(words[start : start + size], peak) for start in range(LOOK, flat.numel(), size)):
        return None
    return Mask(_packed(words, lambda piece: piece.clamp(0, 1).to(torch.uint8)), flat.numel(), value.clone())


def _only(words: Tensor, peak: Tensor) -> bool:
    """Are there none but zero and `peak`? By arithmetic: a comparison takes five times as long on CPUs."""
    return bool(torch.equal(words.clamp(0, 1).mul_(peak), words))


def _packed(flat: Tensor, test: Any) -> Tensor:
    bits = torch.empty(-(-flat.numel() // 8), dtype=torch.uint8, device=flat.device)
    size = _piece(flat)
    for start in range(0, flat.numel(), size):
        found = padded(test(flat[start : start + size]).view(torch.uint8), 8)
        bits[start // 8 : (start + size) // 8] = pack_bits(found)
    return bits


def _piece(t: Tensor) -> int:
    return PIECE.get(t.device.type, PIECE["cuda"])


@dataclass(frozen=True)
class Window:
    """Geometry of a pooling operation; one number for each dimension that is pooled."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]

    @property
    def cells(self) -> int:
        return math.prod(self.kernel)


@dataclass(frozen=True)
class Indices:
    """Where in its window each maximum was. shape, strides: of the index tensor; extent: of the pooled dimensions before."""

    cells: Tensor
    half: bool  # two cells a byte
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    extent: tuple[int, ...]
    window: Window

    @property
    def nbytes(self) -> int:
        return int(self.cells.numel() * self.cells.element_size())

    def decode(self) -> Tensor:
        count = math.prod(self.shape)
        out = self.cells.new_empty(count, dtype=torch.int64)
        whole = out.as_strided(self.shape, self.strides)
        each = math.prod(self.shape[1:])
        for first, last in _rows(self.shape, self.cells):
            whole[first:last].copy_(self._flat(self._cells(first * each, last * each).view(-1, *self.shape[1:])))
        return out

    def _cells(self, start: int, end: int) -> Tensor:
        if not self.half:
            return self.cells[start:end].long()
        pairs = self.cells[start // 2 : -(-end // 2)]
        return torch.stack((pairs & 15, pairs >> 4), dim=-1).view(-1)[: end - start].long()

    def _flat(self, cells: Tensor) -> Tensor:
        flat, left, place = torch.zeros_like(cells), cells, self.window.cells
        for i, side in enumerate(self.extent):
            place //= self.window.kernel[i]
            position = left.div(place, rounding_mode="floor")
            left = left - position * place
            flat = flat * side + position * self.window.dilation[i] + _starts(cells, self.window, i)
        return flat


def window_indices(indices: Tensor, extent: tuple[int, ...], window: Window) -> Indices:
    """Max-pool indices (int64, flat over the pooled dimensions `extent`) relative to their windows: exact, 4 bits each for up
    to 16 cells, 8 for up to 256, else the smallest integer type.

    indices: dense; its last len(extent) dimensions are pooled.
    """
    parts = [
        _narrow(_relative(indices[first:last], extent, window), window.cells) for first, last in _rows(indices.shape, indices)
    ]
    cells = torch.cat(parts) if parts else indices.new_empty(0)
    return Indices(cells, window.cells <= NIBBLE, tuple(indices.shape), tuple(indices.stride()), extent, window)


def _rows(shape: Any, t: Tensor) -> list[tuple[int, int]]:
    """Ranges of the first dimension that hold an eighth of a piece each, an even number of rows so that pairs stay together."""
    rows = max(2, _piece(t) // 8 // max(1, math.prod(shape[1:])) // 2 * 2)
    return [(first, min(first + rows, shape[0])) for first in range(0, shape[0], rows)]


def _relative(indices: Tensor, extent: tuple[int, ...], window: Window) -> Tensor:
    left, relative, place = indices, torch.zeros_like(indices), math.prod(extent)
    for i, side in enumerate(extent):
        place //= side
        position = left.div(place, rounding_mode="floor")
        left = left - position * place
        cell = (position - _starts(indices, window, i)).div_(window.dilation[i], rounding_mode="floor")
        relative = relative * window.kernel[i] + cell
    return relative


def _starts(indices: Tensor, window: Window, i: int) -> Tensor:
    """First place of each window along pooled dimension i, shaped to broadcast over the index tensor; padding is below 0."""
    behind = len(window.kernel) - 1 - i
    count = indices.shape[indices.dim() - 1 - behind]
    starts = torch.arange(count, device=indices.device) * window.stride[i] - window.padding[i]
    return starts.view([-1] + [1] * behind)


def _narrow(relative: Tensor, cells: int) -> Tensor:
    relative = relative.contiguous().view(-1)
    if cells <= NIBBLE:
        pairs = padded(relative.to(torch.uint8), 2).view(-1, 2)
        return pairs[:, 0] | (pairs[:, 1] << 4)
    if cells <= 1 << 8:
        return relative.to(torch.uint8)
    return relative.to(torch.int16 if cells <= 1 << 15 else torch.int32)
