"""Which encoder works on a device: Triton kernels on NVIDIA GPUs where they can be compiled, else plain torch operations."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from kompakt_runtime.codec import tiles
from kompakt_runtime.codec.grid import make_grid

SMALLEST, LARGEST = 16, 22  # log2 of the elements that plain torch operations encode at once
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


def encoder(device: Any, dtype: Any) -> Encoder:
    """The encoder for tensors of this type on this device; both write the same bytes."""
    if device.type != "cuda":
        return plain()
    if dtype == torch.float64:
        return plain("Float64")
    return _on_gpu(device.index if device.index is not None else torch.cuda.current_device())


@functools.cache
def _on_gpu(index: int) -> Encoder:
    """Tries the kernels once: they need a C compiler, a cache folder that can be written, and a driver that takes them."""
    if torch.version.hip:
        return plain("ROCm")
    try:
        from kompakt_runtime.codec import kernels

        x = torch.ones(2 * tiles.BLOCK, device=torch.device("cuda", index))
        part, _ = kernels.encode_part(x, make_grid(x.dtype, 0.1, False), None, 0)
        kernels.decode_part(part, make_grid(x.dtype, 0.1, False), torch.empty_like(x))
    except Exception as error:
        return plain(obstacle(error))
    return Encoder("triton", "", kernels.encode_part, kernels.decode_part, lambda elements: WHOLE)


def obstacle(error: Exception) -> str:
    """One word for why Triton does not work here."""
    if isinstance(error, ImportError):
        return "NoTriton"
    # Triton builds its launcher with the system's C compiler and keeps it in the home folder.
    if "C compiler" in str(error) or isinstance(error, OSError):
        return "NoCompiler"
    return f"TritonFailed{type(error).__name__}"
