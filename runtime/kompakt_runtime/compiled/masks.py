"""Masks that a compiled forward graph hands to its backward graph, as dropout's or a ReLU's: a bit an element instead of a byte.

In both graphs these are operators of the compiler's own, which it fuses with what makes the mask and with what reads it. Sizes
are known, so nothing is kept outside of the graphs, and every bit comes back.
"""

import math
from collections.abc import Sequence
from typing import Any, Final

import torch

from kompakt_runtime.compiled.graphs import base_of, inputs_of, outputs, set_outputs
from kompakt_runtime.compiled.sizes import nbytes, order_of, sizes_of

Node = Any
Graph = Any
BITS: Final = 8  # of a byte
FLAT: Final = -1  # for a dimension: all of them together
SUFFIX: Final = "_bits"  # of the name of what is handed over instead of a mask


def to_bits(forward: Graph, backward: Graph, results: int, minimum: int) -> int:
    """Rewrites both graphs. results, minimum: as of rewriting.rewrite. Returns how many masks are kept as bits."""
    every = outputs(forward)
    theirs = {base_of(one) for one in every[:results] if hasattr(one, "op")}
    by_name = inputs_of(backward)
    found = 0
    for made in every[results:]:
        taken = by_name.get(getattr(made, "name", ""))
        dimension = None if taken is None or base_of(made) in theirs else divided_by(made, minimum)
        if dimension is not None:
            _replace(forward, backward, made, taken, dimension)
            found += 1
    return found


def divided_by(made: Node, minimum: int) -> int | None:
    """The innermost dimension of a mask, if whole bytes of bits fit in, FLAT where they fit only into all of it; None for what is
    no mask of `minimum` bytes that the graph makes and that fills its memory.
    """
    mask = made.meta.get("val")
    if base_of(made).op == "placeholder" or not isinstance(mask, torch.Tensor) or mask.dtype != torch.bool or not mask.dim():
        return None
    if sum(not isinstance(size, int) for size in mask.shape) > 1:
        return None  # a view can be told one size at most that is not known
    order = order_of(mask.shape, mask.stride())
    if not order or nbytes(mask) < minimum:
        return None
    inner, every = mask.shape[order[-1]], math.prod(size for size in mask.shape if isinstance(size, int))
    if isinstance(inner, int) and inner and inner % BITS == 0:
        return order[-1]
    return FLAT if every and every % BITS == 0 else None


def _replace(forward: Graph, backward: Graph, made: Node, taken: Node, dimension: int) -> None:
    with forward.inserting_before(made.next):
        bits = _packed(forward, made, dimension)
    set_outputs(forward, (bits if one is made else one for one in outputs(forward)))
    with backward.inserting_before(taken):
        given = backward.placeholder(f"{taken.name}{SUFFIX}")
    given.meta["val"] = bits.meta["val"]
    with backward.inserting_before(next(node for node in backward.nodes if node.op != "placeholder")):
        mask = _unpacked(backward, given, taken.meta["val"], dimension)
    taken.replace_all_uses_with(mask)
    backward.erase_node(taken)


def _packed(graph: Graph, mask: Node, dimension: int) -> Node:
    """The bits, along that dimension the first one lowest."""
    aten, shape = torch.ops.aten, sizes_of(mask.meta["val"])
    if dimension == FLAT:
        value = mask.meta["val"]
        straight = _call(graph, aten.permute.default, mask, order_of(value.shape, value.stride()))
        return _as_bits(graph, _call(graph, aten.view.default, straight, [-1, BITS]), 0)
    split = [*shape[:dimension], shape[dimension] // BITS, BITS, *shape[dimension + 1 :]]
    return _as_bits(graph, _call(graph, aten.view.default, mask, split), dimension)


def _as_bits(graph: Graph, apart: Node, dimension: int) -> Node:
    """Of eight elements along the dimension after that one."""
    aten = torch.ops.aten
    ones = _call(graph, torch.ops.prims.convert_element_type.default, apart, torch.uint8)
    moved = _call(graph, aten.bitwise_left_shift.Tensor, ones, _places(graph, apart, dimension, apart.meta["val"].dim() - 1))
    return _call(graph, aten.sum.dim_IntList, moved, [dimension + 1], False, dtype=torch.uint8)


def _unpacked(graph: Graph, bits: Node, mask: Any, dimension: int) -> Node:
    if dimension == FLAT:
        order, sizes = order_of(mask.shape, mask.stride()) or [], sizes_of(mask)
        straight = _booleans(graph, bits, 0, [sizes[i] for i in order])
        return _call(graph, torch.ops.aten.permute.default, straight, sorted(range(len(order)), key=lambda i: order[i]))
    return _booleans(graph, bits, dimension, sizes_of(mask))


def _booleans(graph: Graph, bits: Node, dimension: int, sizes: Sequence[int]) -> Node:
    """Of these sizes."""
    aten = torch.ops.aten
    bytes_ = _call(graph, aten.unsqueeze.default, bits, dimension + 1)
    moved = _call(graph, aten.bitwise_right_shift.Tensor, bytes_, _places(graph, bits, dimension, bits.meta["val"].dim()))
    ones = _call(graph, aten.bitwise_and.Scalar, moved, 1)
    return _call(graph, aten.reshape.default, _call(graph, aten.ne.Scalar, ones, 0), list(sizes))


def _places(graph: Graph, like: Node, dimension: int, dimensions: int) -> Node:
    """The numbers 0 to 7 along the dimension after that one, of so many without it."""
    value = like.meta["val"]
    numbers = {"start": 0, "step": 1, "dtype": torch.uint8, "device": value.device, "requires_grad": False}
    with value.fake_mode:
        row = _call(graph, torch.ops.prims.iota.default, BITS, **numbers)
    return _call(graph, torch.ops.aten.view.default, row, [BITS] + [1] * (dimensions - 1 - dimension))


def _call(graph: Graph, operator: Any, *arguments: Any, **keywords: Any) -> Node:
    """A node that knows what it makes."""
    node = graph.call_function(operator, arguments, keywords)
    node.meta["val"] = operator(*(one.meta["val"] if hasattr(one, "meta") else one for one in arguments), **keywords)
    return node
