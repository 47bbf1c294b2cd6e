"""Who packs on a device: plain torch operations on CPUs, Triton kernels on NVIDIA GPUs; nobody where those cannot run, for plain
operations take some hundred launches a part there.
"""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import torch

from kompakt_runtime.codec import tiles
from kompakt_runtime.codec.grid import Grid
from kompakt_runtime.codec.one_pass_layout import WHOLE, OnePassPart
from kompakt_runtime.codec.tiles import Part

Tensor = Any

Launched = tuple[OnePassPart, Tensor, Any]  # with the counters, which are there when the third, an event, is over; None: now

SMALLEST, LARGEST = 16, 22  # log2 of the elements that plain torch operations encode at once
# Bytes an element of a part that they take at most while they pack, and while they unpack, by bytes of an element; of parts of
# SMALLEST and up, as the allocator tells.
PACKING: Final = {8: 25, 4: 19, 2: 18}
UNPACKING: Final = {8: 33, 4: 17, 2: 17}


@dataclass(frozen=True)
class Encoder:
    """reason: one word for why nothing is packed, "" where that is done; at_once: elements of a part; launch: begins to pack a
    part in so many units of room, where sizes are not known at once, and gives the counters on their way to the host;
    stochastic: whether it can round so. Both pack to None where no code keeps the bound.
    """

    name: str
    reason: str
    encode_part: Callable[[Tensor, Grid, int | None, int], Part | OnePassPart | None]
    at_once: Callable[[int], int]
    launch: Callable[[Tensor, float, int], Launched | None] | None = None
    stochastic: bool = True


def elements_at_once(elements: int) -> int:
    """A 1024th to a 2048th of the tensor, so that working memory (below 40 bytes an element of a part) stays within 2 % of it
    even for 16-bit types; at least 64 Ki elements, which take about 2 MB, so that calls are few."""
    return 1 << min(max(elements.bit_length() - 11, SMALLEST), LARGEST)


def working_bytes(t: Tensor, nbytes: int, of: Mapping[int, int]) -> int:
    """What packing or unpacking so many bytes of the tensor's type takes beside the tensor and its copy. Kernels take nothing.

    of: PACKING or UNPACKING.
    """
    item = int(t.element_size())
    elements = nbytes // item
    return 0 if t.is_cuda else of.get(item, 0) * min(elements, elements_at_once(elements))


def plain() -> Encoder:
    return Encoder("torch", "", tiles.encode_part, elements_at_once)


def nobody(reason: str) -> Encoder:
    return Encoder("none", reason, lambda *_: None, lambda elements: elements)


def kernels() -> Encoder:
    """Raises where Triton is not there."""
    from kompakt_runtime.codec import one_pass  # noqa: F401  whether it can be imported

    return Encoder("triton", "", _in_two_runs, lambda _: WHOLE, _launched, False)


def untried(device: Any) -> str:
    """One word for a kind of device on which nothing is packed, since nothing of ours was ever tried on it; "" on CPUs and
    NVIDIA GPUs, and for tensors without data.
    """
    if device.type == "cuda":
        return "ROCm" if torch.version.hip else ""
    return "" if device.type in ("cpu", "meta") else str(device.type).upper()


def encoder(device: Any, dtype: Any) -> Encoder:
    """Who packs tensors of this type on this device."""
    if device.type != "cuda":
        return plain()
    if dtype == torch.float64:
        return nobody("Float64")
    return _on_gpu(device.index if device.index is not None else torch.cuda.current_device(), dtype)


@functools.cache
def _on_gpu(index: int, dtype: Any) -> Encoder:
    """Tries the kernels once: they need a C compiler, a cache folder that can be written, and a driver that takes them."""
    try:
        works, agree = kernels(), agrees(torch.device("cuda", index), dtype)
    except Exception as error:
        return nobody(obstacle(error))
    return works if agree else nobody("TritonDiffers")


def agrees(device: Any, dtype: Any) -> bool:
    """Do the kernels give back what plain torch operations say, for ordinary numbers and 65,536 others? Of 16-bit types these are
    all there are, of float32 every sign and exponent. Versions of Triton differ in how they round and flush.
    """
    from kompakt_runtime.codec import one_pass, one_pass_reference

    wide = torch.arange(1 << 16, dtype=torch.int64)
    bits = one_pass.BITS[dtype.itemsize]
    every = (wide if bits is torch.int16 else (wide << 16) + wide).to(bits).view(dtype)
    x = torch.cat([every, torch.randn(1 << 14, generator=torch.Generator().manual_seed(0)).to(dtype)])
    for bound in (0.1, 2.0):
        wanted, widths = one_pass_reference.expected(x, bound)
        packed, back = packed_whole(x.to(device), bound), torch.empty_like(x, device=device)
        if packed is None or one_pass.widths(packed).tolist() != widths:
            return False
        one_pass.unpack(packed, back)
        if not torch.equal(back.cpu().view(bits), wanted.view(bits)):
            return False
    return True


def _in_two_runs(x: Tensor, grid: Grid, seed: int | None, first: int) -> OnePassPart | None:
    """A part in just as much room as it needs. Waits."""
    return packed_whole(x, grid.bound)


def packed_whole(x: Tensor, bound: float) -> OnePassPart | None:
    asked = _launched(x, bound, 0)
    if asked is None:
        return None
    _, counted, event = asked
    if event is not None:
        event.synchronize()
    used, outliers = counted.tolist()
    whole = _launched(x, bound, used)
    return None if whole is None else whole[0].counted(used, outliers)


def _launched(x: Tensor, bound: float, capacity: int) -> Launched | None:
    from kompakt_runtime.codec import one_pass

    part = one_pass.pack(x, bound, capacity)
    return None if part is None else (part, *one_pass.counters(part))


def obstacle(error: Exception) -> str:
    """One word for why Triton does not work here."""
    if isinstance(error, ImportError):
        return "NoTriton"
    # Triton builds its launcher with the system's C compiler and keeps it in the home folder.
    if "C compiler" in str(error) or isinstance(error, OSError):
        return "NoCompiler"
    return f"TritonFailed{type(error).__name__}"
