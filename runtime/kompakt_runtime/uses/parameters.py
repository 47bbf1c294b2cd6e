"""Does a gradient go to a parameter, or on to what computed it?"""

from typing import Any, Final

Node = Any
Tensor = Any

# Nodes that hand their input on as a view, in another type or in another order: behind them a parameter is still the same
# parameter, and an error in its gradient stays there.
PASSING: Final = frozenset(
    name + "Backward0"
    for name in (
        "T", "Mt", "MH", "View", "UnsafeView", "ToCopy", "Transpose", "Permute", "Expand", "Slice", "Select", "Squeeze",
        "Unsqueeze", "AsStrided", "ReshapeAlias", "Alias", "Clone", "Split", "SplitWithSizes", "Unbind", "Narrow",
        "Movedim", "Numpy_T", "Chunk", "Swapaxes", "Unflatten", "Detach",
    )
) | {"SqueezeBackward1", "SqueezeBackward2", "SqueezeBackward3"}  # fmt: skip
ACCUMULATE: Final = "torch::autograd::AccumulateGrad"


def parameter_behind(node: Node) -> Tensor | None:
    """The leaf that gets this node's gradient, if nothing but views, casts and transposes lie between; else None."""
    while node is not None and node.name() in PASSING:
        node = node.next_functions[0][0]
    return node.variable if node is not None and node.name() == ACCUMULATE else None


def receivers(node: Node, gradients: tuple[int, ...]) -> list[Node]:
    """The nodes behind these of the node's gradients, of those that are asked for."""
    every = node.next_functions
    return [every[number][0] for number in gradients if number < len(every) and every[number][0] is not None]
