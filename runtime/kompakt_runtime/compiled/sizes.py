"""Sizes of tensors as graphs know them: some are numbers, some depend on what a compiled function is called with. Pure."""

import math
from collections.abc import Sequence
from typing import Any


def nbytes(value: Any) -> int:
    """Of a tensor as it was when the graph was made, where sizes may change."""
    return math.prod(size if isinstance(size, int) else size.node.hint or 0 for size in value.shape) * int(value.element_size())


def order_of(shape: Sequence[Any], strides: Sequence[Any]) -> list[int] | None:
    """The dimensions as they lie in memory, outermost first; None where there are gaps, where memory is shared, and where a
    stride is not known.
    """
    if not all(isinstance(stride, int) for stride in strides):
        return None
    order = sorted(range(len(shape)), key=lambda i: (-strides[i], i))
    step = 1
    for place, i in reversed(list(enumerate(order))):
        size = shape[i]
        if not isinstance(size, int):
            return order if place == 0 and strides[i] == step else None
        if size != 1 and strides[i] != step:
            return None
        step *= size
    return order


def sizes_of(value: Any) -> list[int]:
    """-1 for what is not known."""
    return [size if isinstance(size, int) else -1 for size in value.shape]
