"""Signs that a compiled backward graph asks of a value, as a ReLU's output, as masks that the forward graph hands over.

A value that the backward graph makes again of packed ones has other signs near zero, and a sign decides on all of a gradient.
Masks are exact, and one bit an element later (`masks`).
"""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final

import torch

from kompakt_runtime.compiled.graphs import base_of, inputs_of, is_itself, name_of, outputs, set_outputs, uses
from kompakt_runtime.compiled.sizes import nbytes
from kompakt_runtime.compiled.weight_gradients import asks_for_signs

Node = Any
Graph = Any
THRESHOLD: Final = "aten.threshold_backward.default"  # its gradient is zero where the other argument is not greater


def hand_over(
    forward: Graph, backward: Graph, results: int, minimum: int, stay: AbstractSet[str] = frozenset()
) -> dict[str, set[str]]:
    """Rewrites both graphs. results, minimum, stay: as of derived.derive. Returns the values whose signs are handed over now, by
    name, with the names of their masks.
    """
    every = outputs(forward)
    theirs = {base_of(one) for one in every[:results] if hasattr(one, "op")}
    by_name = inputs_of(backward)
    found = dict[str, set[str]]()
    for made in every[results:]:
        taken = by_name.get(getattr(made, "name", ""))
        if taken is None or made.name in stay or base_of(made) in theirs or not _suits(made, minimum):
            continue
        asked = [node for node, operand in uses(taken) if asks_for_signs(node, operand) and is_itself(operand, taken)]
        for kind in dict.fromkeys(map(_kind, asked)):
            mask = _replace(forward, backward, (made, taken), [node for node in asked if _kind(node) == kind], kind)
            found.setdefault(made.name, set()).add(mask)
    return found


def _kind(node: Node) -> str:
    """What is no number is neither greater nor not, so one mask is not the other's opposite."""
    return "le" if name_of(node) == THRESHOLD else name_of(node).split(".")[1]


def _suits(made: Node, minimum: int) -> bool:
    value = made.meta.get("val")
    return base_of(made).op != "placeholder" and isinstance(value, torch.Tensor) and nbytes(value) >= minimum


def _replace(forward: Graph, backward: Graph, value: tuple[Node, Node], asked: Sequence[Node], kind: str) -> str:
    """value: as it is made, and as the backward graph takes it. Returns the mask's name."""
    made, taken = value
    name = f"kompakt_{made.name}_{kind}"
    operator = getattr(torch.ops.aten, kind).Scalar
    with forward.inserting_after(made):
        mask = forward.create_node("call_function", operator, (made, 0), {}, name)
    mask.meta["val"] = operator(made.meta["val"], 0)
    set_outputs(forward, (both for one in outputs(forward) for both in ((one, mask) if one is made else (one,))))
    with backward.inserting_after(taken):
        given = backward.placeholder(name)
    given.meta["val"] = mask.meta["val"]
    for node in asked:
        _ask(backward, node, given)
    return name


def _ask(graph: Graph, node: Node, mask: Node) -> None:
    """The mask instead of the value."""
    asked = mask
    if name_of(node) == THRESHOLD:
        with graph.inserting_before(node):
            asked = graph.call_function(torch.ops.aten.masked_fill.Scalar, (node.args[0], mask, 0))
        asked.meta["val"] = node.meta["val"]
    node.replace_all_uses_with(asked)
    graph.erase_node(node)
