"""Where a gradient goes on along a residual path besides going into a layer through dropout. Pure.

Without dropout the layer's products read that gradient itself, and what comes after is for them to bear. With it they read what a
mask leaves of it; the part of a graph from a value must end there as well, or it would go on through all layers before.
"""

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final

import torch

from kompakt_runtime.compiled.graphs import ALIASES, name_of

Node = Any
SUM: Final = "aten.add.Tensor"
TOGETHER: Final = "aten.cat.default"


def branches(deltas: Iterable[Node], moving: AbstractSet[Node]) -> dict[Node, list[Node]]:
    """Gradients that another one is added to, each with those of the deltas that are made of it number by number. deltas, moving:
    as of slices.BackwardGraph.
    """
    found: dict[Node, list[Node]] = {}
    for delta in deltas:
        branch = _branch(delta, moving)
        if branch is not None and any(joins(branch, user, moving) for user in branch.users):
            found.setdefault(branch, []).append(delta)
    return found


def joins(branch: Node, user: Node, moving: AbstractSet[Node]) -> bool:
    """Does that add another gradient to it?"""
    reads = user.all_input_nodes
    return name_of(user) == SUM and branch in reads and len([one for one in reads if one in moving]) > 1


def is_part(node: Node, reads: Sequence[Node], moving: AbstractSet[Node]) -> bool:
    """Does the node put these gradients beside others for one layer, as those of queries, keys and values that one product made?
    One depends on what the others need, so each ends there.
    """
    return name_of(node) == TOGETHER and any(one in moving and one not in reads for one in node.all_input_nodes)


def _branch(delta: Node, moving: AbstractSet[Node]) -> Node | None:
    """The gradient that it is made of number by number, if that is read by others too."""
    node = delta
    while _goes_on(node):
        read = [one for one in node.all_input_nodes if one in moving]
        if len(read) != 1:
            return None
        node = read[0]
        if len(node.users) > 1:
            return node
    return None


def _goes_on(node: Node) -> bool:
    return torch.Tag.pointwise in getattr(node.target, "tags", ()) or name_of(node) in ALIASES
