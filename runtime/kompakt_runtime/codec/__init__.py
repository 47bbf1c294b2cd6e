"""Error-bounded compression of tensors: by plain torch operations on CPUs, by Triton kernels on NVIDIA GPUs.

`encode(x, error_bound)` keeps |x - x'| <= error_bound for every element, as real numbers, with x' stored in the
tensor's own type; zero stays zero, nonzero stays nonzero and of its sign, NaN and infinity come back in place.
"""

import math
from collections.abc import Iterator
from typing import Any

import torch

from kompakt_runtime.codec.channels import LEAST_BOUND, TYPES, Channels
from kompakt_runtime.codec.format import DTYPES, LOSSY, CorruptPacked, Layout, Packed, span
from kompakt_runtime.codec.grid import Grid, make_grid
from kompakt_runtime.codec.one_pass_layout import TILE, OnePassPart
from kompakt_runtime.codec.pending import Pending, Room
from kompakt_runtime.codec.select import Encoder, encoder
from kompakt_runtime.codec.tiles import Part, decode_part

Tensor = Any

__all__ = ["Channels", "CorruptPacked", "Packed", "Pending", "Room", "begin", "by_channel", "decode", "encode", "pieces"]

# A view with wider gaps comes back with its dimensions in the same order and the gaps closed: giving them back would
# allocate memory that the packed size does not answer for.
WIDEST_SPAN = 4
TILES_AT_ONCE = 2048  # of what kernels packed, in a piece: 16 MiB of float32


def encode(x: Tensor, error_bound: float, *, seed: int | None = None, channels: Channels | None = None) -> Packed:
    """Compresses a tensor of float64, float32, float16 or bfloat16; dense tensors of other types are stored as they are.

    error_bound: the largest allowed |x - x'|, in the unit of x; a positive finite number.
    seed None: rounds to nearest (variance at most error_bound² / 3 for errors spread evenly over a bin).
    A whole number: rounds stochastically, with the mean exact and a variance of at most error_bound² / 6; the random bits
    come from a hash of seed (modulo 2^64) and the element's place in storage order, so a repeat gives the same and ranks with
    different seeds differ. A stochastic grid is finer: about a bit an element more.
    channels: bounds by channel, of which error_bound is the widest; on CPUs, for types with exponents to spare. A signalling NaN
    then comes back quiet.
    -0.0 comes back as 0.0 from a CPU, except where packing was no gain and the elements are stored as they are; as -0.0 from a
    GPU. Where `encoder` names a reason why nothing packs, the elements are stored as they are as well.
    Raises ValueError for another bound, TypeError for another seed and for sparse, quantised or meta tensors, and
    NotImplementedError for a seed on a GPU, whose kernels round to nearest only, and for channels where they cannot be.
    """
    with torch.no_grad():
        layout, flat, grid = _prepared(x, error_bound, seed)
        if grid is None:
            return _as_it_is(layout, flat)
        works = _rounding(encoder(flat.device, flat.dtype), seed)
        if channels is not None and not by_channel(flat, error_bound):
            raise NotImplementedError(f"no bounds by channel for {flat.dtype} on {flat.device} with a bound of {error_bound}")
        parts: list[Part | OnePassPart] = []
        held, most = 0, flat.numel() * flat.element_size()
        size = works.at_once(flat.numel())
        for first in range(0, flat.numel(), size):
            source = flat[first : first + size]
            if channels is not None:
                if not channels.stays_finite(source, first):
                    return _as_it_is(layout, flat)
                source = channels.deepened(source, first)
            part = works.encode_part(source, grid, seed, first)
            held += most if part is None else part.nbytes
            if part is None or held >= most:
                return _as_it_is(layout, flat)
            parts.append(part)
        return Packed(layout, float(error_bound), seed is not None, tuple(parts), None, flat.device, channels)


def by_channel(x: Tensor, error_bound: float) -> bool:
    """May its channels have bounds of their own?"""
    return x.device.type == "cpu" and x.dtype in TYPES and error_bound >= LEAST_BOUND


def begin(x: Tensor, error_bound: float, room: Room) -> Pending | None:
    """`encode` that never waits for the device: `x` must live unchanged until the result is settled.

    room: what an earlier tensor of the same layer needed. None for a tensor that would be stored as it is anyway. Where sizes are
    known at once, on a CPU, the result is settled already. Raises as `encode` does.
    """
    with torch.no_grad():
        layout, flat, grid = _prepared(x, error_bound, None)
        if grid is None:
            return None
        works = encoder(flat.device, flat.dtype)
        if works.launch is None or flat.numel() > works.at_once(flat.numel()):
            packed = encode(x, error_bound)
            return None if packed.raw else Pending(packed)
        launched = works.launch(flat, grid.bound, room.units(flat.numel(), flat.element_size()))
        if launched is None:
            return None
        part, counted, event = launched
        return Pending(Packed(layout, float(error_bound), False, (part,), None, flat.device), counted, event)


def _rounding(works: Encoder, seed: int | None) -> Encoder:
    if seed is not None and not works.stochastic:
        raise NotImplementedError("the kernels round to nearest; give no seed, or encode on the CPU")
    return works


def _prepared(x: Tensor, error_bound: float, seed: int | None) -> tuple[Layout, Tensor, Grid | None]:
    """The layout, the stored elements in storage order, and the grid; None where the elements are stored as they are."""
    if not (isinstance(error_bound, int | float) and 0 < error_bound < math.inf):
        raise ValueError(f"error_bound must be a positive finite number, not {error_bound!r}")
    if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int)):
        raise TypeError(f"seed must be a whole number or None, not {seed!r}")
    if x.layout != torch.strided or x.is_meta or x.dtype not in DTYPES:
        raise TypeError(f"only dense tensors of a plain number type can be packed, not {x.layout}, {x.dtype} on {x.device}")
    x = x.detach().resolve_conj().resolve_neg()
    layout = _layout(x)
    flat = _compact(x, layout)
    grid = make_grid(x.dtype, float(error_bound), seed is not None) if x.dtype in LOSSY else None
    return layout, flat, grid if grid is not None and grid.usable and flat.numel() else None


def decode(packed: Packed) -> Tensor:
    """The tensor again: same dtype, shape, strides and device. May be called any number of times."""
    layout = packed.layout
    out = torch.empty_strided(layout.shape, layout.strides, dtype=layout.dtype, device=packed.device)
    order, dense = _storage_order(layout)
    flat = _flat_view(out, layout) if dense else out.new_empty(layout.stored)
    _fill(packed, flat)
    if not dense:
        _distinct(out, layout, order).copy_(flat.view([layout.shape[i] for i in order]))
    return out


def pieces(packed: Packed) -> Iterator[tuple[int, Tensor]]:
    """The elements in storage order, decoded a part at a time; with each part the place of its first element."""
    if packed.raw:
        yield 0, _flat_view(decode(packed), packed.layout)
        return
    start = 0
    for part in packed.parts:
        step = TILES_AT_ONCE * TILE if isinstance(part, OnePassPart) else part.elements
        for first in range(0, part.elements, step):
            piece = torch.empty(min(step, part.elements - first), dtype=packed.layout.dtype, device=packed.device)
            _unpack(packed, part, piece, first // TILE)
            if packed.channels is not None:
                packed.channels.flatten_(piece, start + first)
            yield start + first, piece
        start += part.elements


def _fill(packed: Packed, flat: Tensor) -> None:
    if packed.raw:
        if flat.numel():
            flat.view(torch.uint8).copy_(packed.plain)
        return
    start = 0
    for part in packed.parts:
        _unpack(packed, part, flat[start : start + part.elements], 0)
        if packed.channels is not None:
            packed.channels.flatten_(flat[start : start + part.elements], start)
        start += part.elements


def _unpack(packed: Packed, part: Part | OnePassPart, out: Tensor, tile: int) -> None:
    """Elements of a part, from tile `tile` on if kernels packed it."""
    if isinstance(part, OnePassPart):
        from kompakt_runtime.codec.one_pass import unpack

        return unpack(part, out, tile)
    return decode_part(part, packed.grid, out)


def _as_it_is(layout: Layout, flat: Tensor) -> Packed:
    data = flat.view(torch.uint8) if flat.numel() else torch.empty(0, dtype=torch.uint8, device=flat.device)
    return Packed(layout, 0.0, False, (), data.clone(), flat.device)


def _layout(x: Tensor) -> Layout:
    layout = Layout(x.dtype, tuple(x.shape), tuple(x.stride()))
    if span(layout) <= WIDEST_SPAN * layout.stored and not _overlaps(layout):
        return layout
    return Layout(x.dtype, tuple(x.shape), tuple(torch.empty_like(x, device="meta").stride()))


def _storage_order(layout: Layout) -> tuple[list[int], bool]:
    """The dimensions that have places of their own, outermost first, and whether they fill their memory without gaps."""
    real = [i for i, stride in enumerate(layout.strides) if stride]
    order = sorted(real, key=lambda i: (-layout.strides[i], -layout.shape[i]))
    return order, span(layout) == layout.stored


def _overlaps(layout: Layout) -> bool:
    """Whether two indices may share a place other than by stride 0 (judged safely: some tensors that do not overlap count)."""
    reach = 0
    for i in reversed(_storage_order(layout)[0]):
        if layout.shape[i] > 1 and layout.strides[i] <= reach:
            return True
        reach += (layout.shape[i] - 1) * layout.strides[i]
    return False


def _compact(x: Tensor, layout: Layout) -> Tensor:
    """The stored elements of `x` in storage order, 1-D and contiguous; a view of `x` where it is dense."""
    order, dense = _storage_order(layout)
    if dense and layout.strides == tuple(x.stride()):
        return _flat_view(x, layout)
    return _distinct(x, layout, order).contiguous().view(-1)


def _distinct(x: Tensor, layout: Layout, order: list[int]) -> Tensor:
    """`x` without its dimensions of stride 0, the others in storage order."""
    if 0 in layout.shape:
        return x.new_empty([layout.shape[i] for i in order])
    for i, stride in enumerate(layout.strides):
        if not stride:
            x = x.narrow(i, 0, 1)
    rest = [i for i in range(x.dim()) if i not in order]
    return x.permute(*order, *rest).reshape([layout.shape[i] for i in order])


def _flat_view(x: Tensor, layout: Layout) -> Tensor:
    return x.as_strided((layout.stored,), (1,), x.storage_offset())
