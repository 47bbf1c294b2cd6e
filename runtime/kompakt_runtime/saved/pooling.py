"""The geometry of max-pooling, as its autograd node tells it."""

from typing import Any, Final

from kompakt_runtime.compat.graph import argument
from kompakt_runtime.saved.lossless import Window

Node = Any

POOLED: Final = {"MaxPool2DWithIndicesBackward0": 2, "MaxPool3DWithIndicesBackward0": 3}


def window_of(node: Node, pooled: int) -> Window:
    """Numbers are given once for all dimensions or for each; without a stride it is the kernel's size."""
    kernel = _each(argument(node, "kernel_size", ()), pooled)
    stride = argument(node, "stride", ())
    return Window(
        kernel,
        _each(stride, pooled) if stride else kernel,
        _each(argument(node, "padding", ()), pooled),
        _each(argument(node, "dilation", ()), pooled),
    )


def _each(numbers: tuple[int, ...], pooled: int) -> tuple[int, ...]:
    return tuple(numbers) if len(numbers) == pooled else tuple(numbers) * pooled
