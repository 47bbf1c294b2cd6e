"""Max-pooling operations found in autograd's graph: their geometry is readable there and nowhere at the time of saving."""

from collections.abc import Iterator, Set
from typing import Any, Final

from kompakt_runtime.lossless import Window

Node = Any

POOLED: Final = {"MaxPool2DWithIndicesBackward0": 2, "MaxPool3DWithIndicesBackward0": 3}


def pool_nodes(outputs: Any, made: Set[int]) -> Iterator[tuple[Node, int]]:
    """The max-pool nodes behind outputs of a module call (tensors in tuples, lists, dicts), and how many dimensions they pool.

    made: sequence numbers of the operations that made their inputs, at least one; pooling of other inputs is left out.
    """
    since = min(made)  # neither this nor what is older can be one
    seen: set[Node] = set()
    waiting = list(roots(outputs))
    while waiting:
        node = waiting.pop()
        if node in seen or node._sequence_nr() <= since:
            continue
        seen.add(node)
        if node.name() in POOLED and node.next_functions[0][0]._sequence_nr() in made:
            yield node, POOLED[node.name()]
        waiting += [behind for behind, _ in node.next_functions if behind is not None]


def roots(outputs: Any) -> Iterator[Node]:
    """The nodes that made these tensors (in tuples, lists, dicts)."""
    if isinstance(outputs, dict):
        outputs = tuple(outputs.values())
    if isinstance(outputs, tuple | list):
        for output in outputs:
            yield from roots(output)
    elif getattr(outputs, "grad_fn", None) is not None:
        yield outputs.grad_fn


def window_of(node: Node, pooled: int) -> Window:
    """Numbers are given once for all dimensions or for each; without a stride it is the kernel's size."""
    kernel = _each(node._saved_kernel_size, pooled)
    return Window(
        kernel,
        _each(node._saved_stride, pooled) if node._saved_stride else kernel,
        _each(node._saved_padding, pooled),
        _each(node._saved_dilation, pooled),
    )


def _each(numbers: tuple[int, ...], pooled: int) -> tuple[int, ...]:
    return tuple(numbers) if len(numbers) == pooled else tuple(numbers) * pooled
