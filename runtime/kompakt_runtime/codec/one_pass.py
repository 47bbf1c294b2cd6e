"""Packs on an NVIDIA GPU in one pass: one allocation and two launches a tensor, the first of which sets 16 bytes to zero; unpacks
with one launch. `one_pass_layout.py` says what lies where. Imported only where it is used.

How much room tiles need is known when they have asked for it. If it was more than there is, the copy is not whole; the counter
says what would suffice. Nothing here waits: the counters travel to pinned memory behind the kernel.
"""

import functools
from typing import Any, Final

import torch

from kompakt_runtime.codec.one_pass_layout import COUNTED, HEAD, RAW, TILE, Offsets, OnePassPart
from kompakt_runtime.codec.pack_kernels import pack_tiles
from kompakt_runtime.codec.scales import MOST_BITS, scales, table
from kompakt_runtime.codec.unpack_kernels import unpack_tiles
from kompakt_runtime.compat.streams import launching_on, stream_on

Tensor = Any

KINDS: Final = {torch.float32: 0, torch.float16: 1, torch.bfloat16: 2}
BITS: Final = {4: torch.int32, 2: torch.int16}
OPTIONS: Final = {"FEWEST": 1, "WIDEST": MOST_BITS + 1, "num_warps": 1, "enable_fp_fusion": False}
# Programs of one warp that a multiprocessor's 65,536 registers hold, so that none waits for another to end.
PACKING: Final = {0: 8, 1: 16, 2: 16}
UNPACKING: Final = 24


def pack(x: Tensor, bound: float, capacity: int) -> OnePassPart | None:
    """x: 1-D, contiguous; it must live unchanged until the counters are known. capacity: units for packed tiles; 0 only counts.

    None where no bin keeps the bound.
    """
    with launching_on(x.device):
        rows = scales_on(x.dtype, bound, x.device)
        if rows is None:
            return None
        places = Offsets.of(x.numel(), x.element_size(), capacity)
        words = torch.empty(places.end, dtype=torch.int32, device=x.device)
        words[:HEAD].zero_()
        whole, rest = _cut(x, places.tiles)
        programs = programs_for(x.device, places.tiles, PACKING[KINDS[x.dtype]])
        pack_tiles[(programs,)](
            whole, rows, words, rest, words[places.rest :].view(rest.dtype), places.tiles, rest.numel(),
            programs, places.start, capacity, KIND=KINDS[x.dtype], **OPTIONS,
        )  # fmt: skip
        return OnePassPart(x.dtype, x.numel(), capacity, words, rows)


def unpack(part: OnePassPart, out: Tensor, first: int = 0) -> None:
    """Writes elements from tile `first` on into `out`, 1-D and contiguous, as many as it has: whole tiles, or to the end."""
    item = part.dtype.itemsize
    places = Offsets.of(part.elements, item, part.capacity)
    tiles = out.numel() // TILE
    whole, rest = _cut(out, tiles)
    programs = programs_for(out.device, tiles, UNPACKING)
    with launching_on(out.device):
        unpack_tiles[(programs,)](
            whole, out.view(BITS[item]), part.scales, part.words, part.words[places.rest :].view(rest.dtype), rest,
            tiles, rest.numel(), programs, first, places.start, KIND=KINDS[part.dtype], **OPTIONS,
        )  # fmt: skip


def counters(part: OnePassPart) -> tuple[Tensor, Any]:
    """Units asked for and elements without a code, on the host once the event is over; None where they are there."""
    if part.words.device.type != "cuda":
        return part.words[:COUNTED].clone(), None
    with launching_on(part.words.device):
        found = torch.empty(COUNTED, dtype=torch.int32, pin_memory=True)
        found.copy_(part.words[:COUNTED], non_blocking=True)
        event = torch.cuda.Event()
        event.record()
    return found, event


def widths(part: OnePassPart) -> Tensor:
    """Bits an element of each tile, RAW for one kept as it was. Waits."""
    tiles = part.elements // TILE
    return part.words[HEAD : HEAD + 2 * tiles].view(-1, 2)[:, 1] & RAW


@functools.lru_cache(4096)
def _table(dtype: Any, bound: float, device: Any, stream: int | None) -> Tensor | None:
    # Per stream: another might read it before it is there.
    rows = scales(dtype, bound)
    return table(dtype, rows, device) if rows else None


def scales_on(dtype: Any, bound: float, device: Any) -> Tensor | None:
    """The table of steps for a bound, made once."""
    return _table(dtype, bound, device, stream_on(device))


def programs_for(device: Any, tiles: int, each: int) -> int:
    """each: how many a multiprocessor runs at a time."""
    return max(1, min(tiles, each * _processors(device)))


@functools.cache
def _processors(device: Any) -> int:
    return int(torch.cuda.get_device_properties(device).multi_processor_count) if device.type == "cuda" else 1


def _cut(x: Tensor, tiles: int) -> tuple[Tensor, Tensor]:
    """The whole tiles as int32 words, the rest as single elements' bits; views, unless the memory begins between two words."""
    bits = x.view(BITS[x.element_size()])
    head = bits[: tiles * TILE]
    if x.element_size() == 2 and x.storage_offset() % 2:
        head = head.clone()
    return head.view(torch.int32), bits[tiles * TILE :]
