"""The two gradients that one operator of a compiled backward graph makes of a convolution, by an operator each. Pure.

Only the weight's gradient reads the operand. As long as one operator makes both, the gradient that goes on waits for the operand,
and so for all that the operand is made of.
"""

from typing import Any, Final

import torch

from kompakt_runtime.compiled.graphs import name_of
from kompakt_runtime.compiled.weight_gradients import CONVOLUTION, INPUT, STRIDE, TRANSPOSED

Node = Any
Graph = Any
DELTA, WEIGHT, GROUPS, MASK = 0, 2, 9, 10  # arguments of CONVOLUTION
ITEM: Final = "getitem"


def split(backward: Graph) -> int:
    """Rewrites the graph. Returns how many convolutions have two operators now."""
    found = [node for node in backward.nodes if name_of(node) == CONVOLUTION and _splits(node)]
    for node in found:
        _split(backward, node)
    return len(found)


def _splits(node: Node) -> bool:
    """Are both gradients made, of sizes that are known but for the batch's?"""
    sizes = [size for place in (DELTA, INPUT, WEIGHT) for size in node.args[place].meta["val"].shape[1:]]
    sizes += [number for one in node.args[STRIDE:GROUPS] if hasattr(one, "__len__") for number in one]
    places = len(node.args[INPUT].meta["val"].shape) - 2
    full = all(len(node.args[STRIDE + place]) == places for place in range(3))
    return list(node.args[MASK][:2]) == [True, True] and full and all(isinstance(size, int) for size in sizes)


def _split(graph: Graph, node: Node) -> None:
    """The operator that was there goes on making the gradients of weight and bias."""
    with graph.inserting_before(node):
        onward = graph.call_function(torch.ops.aten.convolution.default, _onward(node))
    values = node.meta["val"]
    onward.meta["val"] = values[0]
    for user in [one for one in node.users if name_of(one) == ITEM and one.args[1] == 0]:
        user.replace_all_uses_with(onward)
        graph.erase_node(user)
    node.update_arg(MASK, [False, *node.args[MASK][1:]])
    node.meta["val"] = (None, *values[1:])


def _onward(node: Node) -> tuple[Any, ...]:
    """Arguments of the convolution, the other way round, that makes the gradient at the operand of the one at the output."""
    delta, weight = node.args[DELTA], node.args[WEIGHT]
    stride, padding, dilation, transposed = node.args[STRIDE : TRANSPOSED + 1]
    more = [0] * len(stride)
    if not transposed:
        read, made, kernel = (node.args[place].meta["val"].shape for place in (INPUT, DELTA, WEIGHT))
        # What a stride passed over at the end: torch's formula for the size of a transposed convolution's output, solved for it.
        more = [
            read[2 + i] - ((made[2 + i] - 1) * stride[i] - 2 * padding[i] + dilation[i] * (kernel[2 + i] - 1) + 1)
            for i in range(len(stride))
        ]
    return delta, weight, None, stride, padding, dilation, not transposed, more, node.args[GROUPS]
