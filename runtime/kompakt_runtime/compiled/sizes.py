"""Sizes of tensors as graphs know them: some are numbers, some depend on what a compiled function is called with. Pure."""

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any


def nbytes(value: Any) -> int:
    """Of a tensor as it was when the graph was made, where sizes may change."""
    return math.prod(hint(size) for size in value.shape) * int(value.element_size())


def order_of(shape: Sequence[Any], strides: Sequence[Any]) -> list[int] | None:
    """The dimensions as they lie in memory, outermost first; None where there are gaps, where memory is shared, and where it
    depends on what the function is called with.
    """
    order = sorted(range(len(shape)), key=lambda i: (-hint(strides[i]), i))
    step: Any = 1
    for i in reversed(order):
        size = term(shape[i])
        if size != 1 and term(strides[i]) != step:
            return None
        step = step * size
    return order


def hint(size: Any) -> int:
    """What it was when the graph was made."""
    return size if isinstance(size, int) else int(size.node.hint or 0)


def term(size: Any) -> Any:
    """By which two sizes are the same for every call if they are equal; comparing the sizes themselves would bind the graph."""
    return size if isinstance(size, int) else size.node.expr


def made_by(wanted: Any) -> Callable[[Any, Any], Any] | None:
    """What makes a term of its parts, two by two; None for what is no sum or product."""
    return operator.mul if wanted.is_Mul else operator.add if wanted.is_Add else None


def sizes_of(value: Any) -> list[int]:
    """-1 for what is not known."""
    return [size if isinstance(size, int) else -1 for size in value.shape]
