"""Values that a backward graph can make again of others that it is handed anyway, so that nobody keeps them.

The compiler's own division counts bytes of values as they are: a product's operand is in memory in any case, so it hands that
over as well. Where all are packed, an operand takes as much as what it is made of.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final

import torch

from kompakt_runtime.codec.format import LOSSY
from kompakt_runtime.compiled.sizes import nbytes, sizes_of
from kompakt_runtime.compiled.slices import ITEM, is_size, runs_again
from kompakt_runtime.compiled.weight_gradients import ALIASES, THEMSELVES, TURNS, VIEWS, base_of, name_of, outputs

Node = Any
Graph = Any
MOST: Final = 32  # operators for one value
# Besides operators that make each number of one number: what norms and casts are made of.
CHEAP: Final = ("aten.mean.", "aten.sum.", "aten.var_mean.", "aten.clone.", "prims.convert_element_type.", "aten._to_copy.", ITEM)
REPEATS: Final = VIEWS | TURNS | THEMSELVES | {"aten.expand.default", "aten.unsqueeze.default", "aten.clone.default"}


def derive(
    forward: Graph, backward: Graph, results: int, minimum: int, linear: AbstractSet[Node], stay: AbstractSet[str] = frozenset()
) -> int:
    """Rewrites both graphs. results, minimum: as of rewriting.rewrite; linear: what products alone read, which may have wider
    errors than what something is made of; stay: names of what is handed over as before. Returns how many values are no longer.
    """
    every = outputs(forward)
    theirs = {base_of(one) for one in every[:results] if hasattr(one, "op")}
    handed = _Inputs(backward, {one: one for one in every[results:] if hasattr(one, "op")})
    for made in [one for one in handed.kept if _suits(one, minimum) and base_of(one) not in theirs and one.name not in stay]:
        others = _known(one for one in handed.kept if one is not made)
        nodes = None if base_of(made) in map(base_of, others) else _makers(made, others, linear)
        if nodes is not None:
            handed.make(made, nodes, others)
            del handed.kept[made]
    for made in list(handed.kept):
        source = _source(made)
        if source is not None and handed.takes(source):
            handed.give(made, source)
            handed.make(made, _makers(made, {source: source}, set()) or [], {source: source})
    output = next(node for node in forward.nodes if node.op == "output")
    gone = {one for one in every[results:] if hasattr(one, "op")} - set(handed.kept)
    saved = [handed.kept.get(one, one) for one in every[results:] if one not in gone]
    output.args = ([*every[:results], *saved], *output.args[1:])
    return len(gone) + sum(made is not source for made, source in handed.kept.items())


class _Inputs:
    """What the backward graph is handed. kept: by what was handed over before, what is now."""

    def __init__(self, backward: Graph, kept: dict[Node, Node]) -> None:
        self._graph, self.kept = backward, kept
        self._inputs = {node.name: node for node in backward.nodes if node.op == "placeholder"}

    def takes(self, source: Node) -> bool:
        """May it be an input? The graphs know a value by one name."""
        return source.op != "placeholder" and all(node.name != source.name for node in self._graph.nodes)

    def give(self, made: Node, source: Node) -> None:
        """The source in its place."""
        with self._graph.inserting_before(self._inputs[made.name]):
            given = self._graph.placeholder(source.name)
        given.meta["val"] = source.meta["val"]
        self._inputs[source.name], self.kept[made] = given, source

    def make(self, made: Node, nodes: Sequence[Node], known: Mapping[Node, Node]) -> None:
        """By these operators, where it is read first. known: what they read, each with what is handed over of it."""
        taken, copies = self._inputs.pop(made.name), dict[Node, Node]()
        first = next(node for node in self._graph.nodes if node in taken.users)
        with self._graph.inserting_before(first):

            def given(node: Node) -> Node:
                if node not in copies:
                    kept = self._inputs[known[node].name]
                    copies[node] = kept if known[node] is node else _view(self._graph, kept, node)
                return copies[node]

            for node in nodes:
                copies[node] = self._graph.node_copy(node, given)
        taken.replace_all_uses_with(copies[made])
        self._graph.erase_node(taken)


def _source(made: Node) -> Node | None:
    """What it is a copy of several times over, as keys for each group of queries; None where nothing is smaller. What shares
    memory with more would keep all of that.
    """
    chain = [made]
    while name_of(chain[-1]) in REPEATS and not any(is_size(one) for one in chain[-1].all_input_nodes):
        chain.append(chain[-1].args[0])
    source = min(chain, key=_bytes)
    return source if _bytes(source) < _bytes(made) and _bytes(base_of(source)) == _bytes(source) else None


def _bytes(node: Node) -> float:
    value = node.meta.get("val")
    return nbytes(value) if isinstance(value, torch.Tensor) else math.inf


def _suits(made: Node, minimum: int) -> bool:
    value, own = made.meta.get("val"), base_of(made).op != "placeholder"
    return own and isinstance(value, torch.Tensor) and value.dtype in LOSSY and nbytes(value) >= minimum


def _known(kept: Iterable[Node]) -> dict[Node, Node]:
    """What is kept, and what it is a view of all of, each with what is kept."""
    found = {}
    for one in kept:
        node = found[one] = one
        while name_of(node) in VIEWS | THEMSELVES:
            node = node.args[0]
            found.setdefault(node, one)
    return found


def _makers(made: Node, known: Mapping[Node, Node], linear: AbstractSet[Node]) -> list[Node] | None:
    """The operators that make it of what is known, in order; None where others would have to run as well."""
    found, waiting = dict[Node, None](), [made]
    while waiting:
        node = waiting.pop()
        if node in found or (node is not made and node in known and known[node] not in linear):
            continue
        if len(found) == MOST or (node in known and node is not made) or not _is_cheap(node):
            return None
        found[node] = None
        waiting += node.all_input_nodes
    return [node for node in made.graph.nodes if node in found]


def _is_cheap(node: Node) -> bool:
    """Where sizes are not known, what reads the value has no text as a program, and the others would stay as they are."""
    if node.op != "call_function" or not runs_again(node) or any(is_size(one) for one in node.all_input_nodes):
        return False
    pointwise = torch.Tag.pointwise in getattr(node.target, "tags", ())
    return pointwise or name_of(node) in ALIASES or name_of(node).startswith(CHEAP)


def _view(graph: Graph, kept: Node, like: Node) -> Node:
    node = graph.call_function(torch.ops.aten.reshape.default, (kept, sizes_of(like.meta["val"])))
    node.meta["val"] = like.meta["val"]
    return node
