"""What is read from autograd's graph beside what its nodes hold: where it begins, and the geometry of max-pooling."""

import dataclasses
from collections.abc import Iterator
from typing import Any, Final

from kompakt_runtime.compat.graph import argument
from kompakt_runtime.lossless import Window

Node = Any

POOLED: Final = {"MaxPool2DWithIndicesBackward0": 2, "MaxPool3DWithIndicesBackward0": 3}


def roots(outputs: Any) -> Iterator[Node]:
    """The nodes that made these tensors (in tuples, lists, dicts, dataclasses)."""
    if isinstance(outputs, dict):
        outputs = tuple(outputs.values())
    elif dataclasses.is_dataclass(outputs):
        outputs = tuple(vars(outputs).values())
    if isinstance(outputs, tuple | list):
        for output in outputs:
            yield from roots(output)
    elif getattr(outputs, "grad_fn", None) is not None:
        yield outputs.grad_fn


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
