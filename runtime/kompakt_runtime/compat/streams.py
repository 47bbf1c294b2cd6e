"""Which stream a thread launches on, and which device is its own: asked several times for each tensor."""

import contextlib
from typing import Any

import torch

# What torch.compile and Triton ask; `torch.cuda.current_stream` makes an object each time and takes many times longer.
_RAW: Any = getattr(torch._C, "_cuda_getCurrentRawStream", None)


def stream_on(device: Any) -> int | None:
    """Number of the stream that operations on the device run on now, for this thread; None on CPUs."""
    if device.type != "cuda":
        return None
    if _RAW is None or device.index is None:
        return int(torch.cuda.current_stream(device).cuda_stream)
    return int(_RAW(device.index))


def launching_on(device: Any) -> Any:
    """Triton launches on the current device, which need not be the tensor's."""
    if device.type != "cuda" or device.index == torch.cuda.current_device():
        return contextlib.nullcontext()
    return torch.cuda.device(device)
