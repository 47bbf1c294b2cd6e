"""Which encoder works on a device: Triton kernels on NVIDIA GPUs where they can be compiled, else plain torch operations."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from kompakt_runtime.codec import tiles
from kompakt_runtime.codec.grid import make_grid

SMALLEST, LARGEST = 16, 22  # log2 of the elements that plain torch operations encode at once
SECTIONS = ("bitmap", "table", "heads", "words", "places", "kept")
WHOLE = 1 << 28  # elements that the kernels encode at once; their working memory does not grow with it


@dataclass(frozen=True)
class Encoder:
    """`reason`: why it is not the kernels, "" where they work or are not meant to; `at_once`: elements of a part."""

    name: str
    reason: str
    encode_part: Callable[..., Any]
    decode_part: Callable[..., Any]
    at_once: Callable[[int], int]


def elements_at_once(elements: int) -> int:
    """A 1024th to a 2048th of the tensor, so that working memory (below 40 bytes an element of a part) stays within 2 % of it
    even for 16-bit types; at least 64 Ki elements, which take about 2 MB, so that calls are few."""
    return 1 << min(max(elements.bit_length() - 11, SMALLEST), LARGEST)


def plain(reason: str = "") -> Encoder:
    return Encoder("torch", reason, tiles.encode_part, tiles.decode_part, elements_at_once)


def untried(device: Any) -> str:
    """One word for a kind of device on which nothing is packed, since nothing of ours was ever tried on it; "" on CPUs and
    NVIDIA GPUs, and for tensors without data.
    """
    if device.type == "cuda":
        return "ROCm" if torch.version.hip else ""
    return "" if device.type in ("cpu", "meta") else str(device.type).upper()


def encoder(device: Any, dtype: Any) -> Encoder:
    """The encoder for tensors of this type on this device; both write the same bytes."""
    if device.type != "cuda":
        return plain()
    if dtype == torch.float64:
        return plain("Float64")
    return _on_gpu(device.index if device.index is not None else torch.cuda.current_device(), dtype)


@functools.cache
def _on_gpu(index: int, dtype: Any) -> Encoder:
    """Tries the kernels once: they need a C compiler, a cache folder that can be written, and a driver that takes them."""
    try:
        from kompakt_runtime.codec import kernels

        agree = same_bytes(kernels, torch.device("cuda", index), dtype)
    except Exception as error:
        return plain(obstacle(error))
    if not agree:
        return plain("TritonDiffers")
    return Encoder("triton", "", kernels.encode_part, kernels.decode_part, lambda elements: WHOLE)


def same_bytes(kernels: Any, device: Any, dtype: Any) -> bool:
    """Do these functions pack and unpack 65,536 numbers as plain torch operations do? Of 16-bit types these are all there are,
    of float32 every sign and exponent. Versions of Triton differ in how they round and flush.
    """
    wide = torch.arange(1 << 16, dtype=torch.int64, device=device)
    ints = {2: torch.int16, 4: torch.int32}[dtype.itemsize]
    x = (wide if ints is torch.int16 else (wide << 16) + wide).to(ints).view(dtype)
    for seed in (None, 1):
        grid = make_grid(dtype, 0.1, seed is not None)
        wanted, ours = tiles.encode_part(x, grid, seed, 0)[0], kernels.encode_part(x, grid, seed, 0)[0]
        reference, out = torch.empty_like(x), torch.empty_like(x)
        tiles.decode_part(wanted, grid, reference)
        kernels.decode_part(ours, grid, out)
        sections = [(getattr(wanted, name), getattr(ours, name)) for name in SECTIONS]
        if not all(map(_same, *zip(*sections, (reference, out), strict=True))):
            return False
    return True


def _same(a: Any, b: Any) -> bool:
    if a is None or b is None:
        return a is b
    return bool(a.numel() == b.numel() and torch.equal(a.view(torch.uint8), b.view(torch.uint8)))


def obstacle(error: Exception) -> str:
    """One word for why Triton does not work here."""
    if isinstance(error, ImportError):
        return "NoTriton"
    # Triton builds its launcher with the system's C compiler and keeps it in the home folder.
    if "C compiler" in str(error) or isinstance(error, OSError):
        return "NoCompiler"
    return f"TritonFailed{type(error).__name__}"
