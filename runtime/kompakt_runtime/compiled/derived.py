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
from kompakt_runtime.compiled.graphs import ALIASES, THEMSELVES, TURNS, VIEWS, base_of, name_of, outputs
from kompakt_runtime.compiled.sizes import nbytes, sizes_of
from kompakt_runtime.compiled.slices import ITEM, is_size, runs_again

Node = Any
Graph = Any
MOST: Final = 32  # operators for one value
# Besides operators that make each number of one number: what norms and casts are made of.
CHEAP: Final = ("aten.mean.", "aten.sum.", "aten.var_mean.", "aten.clone.", "prims.convert_element_type.", "aten._to_copy.", ITEM)
REPEATS: Final = VIEWS | TURNS | THEMSELVES | {"aten.expand.default", "aten.unsqueeze.default", "aten.clone.default"}


def derive(
    forward: Graph,
    backward: Graph,
    results: int,
    minimum: int,
    linear: AbstractSet[Node],
    stay: AbstractSet[str] = frozenset(),
    learnt: AbstractSet[Node] = frozenset(),
) -> int:
    """Rewrites both graphs. results, minimum: as of rewriting.rewrite; linear: what products alone read, which may have wider
    errors than what something is made of; stay: names of what is handed over as before; learnt: parameters that are trained.
    Returns how many values are no longer.
    """
    every = outputs(forward)
    theirs = {base_of(one) for one in every[:results] if hasattr(one, "op")}
    handed = _Inputs(backward, every[results:])
    weights = _free(learnt, handed.nodes)
    for made in [one for one in handed.nodes if _suits(one, minimum) and base_of(one) not in theirs and one.name not in stay]:
        others = _known(one for one in handed.nodes if one is not made)
        nodes = None if base_of(made) in map(base_of, others) else _makers(made, weights | others, linear)
        if nodes is not None:
            handed.make(made, nodes, weights | others)
    for made in handed.nodes:
        source = _source(made)
        if source is not None and handed.takes(source):
            handed.give(source, made)
            handed.make(made, _makers(made, {source: source}, set()) or [], {source: source})
    output = next(node for node in forward.nodes if node.op == "output")
    output.args = ([*every[:results], *handed.order], *output.args[1:])
    return len(set(every[results:]) - set(handed.order))


def _free(learnt: AbstractSet[Node], handed: Sequence[Node]) -> dict[Node, Node]:
    """Parameters that may be handed over as well, since they are in memory in any case. Where none is yet, an update between the
    passes, which nobody would notice without us, would become an error.
    """
    return {one: one for one in learnt} if not learnt.isdisjoint(handed) else {}


class _Inputs:
    """What the backward graph is handed. order: as the forward graph hands it over; sizes among it are numbers or nodes."""

    def __init__(self, backward: Graph, handed: Sequence[Any]) -> None:
        self._graph, self.order = backward, list(handed)
        self._inputs = {node.name: node for node in backward.nodes if node.op == "placeholder"}

    @property
    def nodes(self) -> list[Node]:
        return [one for one in self.order if hasattr(one, "op")]

    def takes(self, source: Node) -> bool:
        """May it be an input? The graphs know a value by one name."""
        return source.op != "placeholder" and all(node.name != source.name for node in self._graph.nodes)

    def give(self, source: Node, made: Node) -> None:
        """As well, before that."""
        with self._graph.inserting_before(self._inputs[made.name]):
            given = self._graph.placeholder(source.name)
        given.meta["val"] = source.meta["val"]
        self._inputs[source.name] = given
        self.order.insert(self.order.index(made), source)

    def make(self, made: Node, nodes: Sequence[Node], known: Mapping[Node, Node]) -> None:
        """By these operators, where it is read first. known: what they read, each with what is handed over of it."""
        reads = dict.fromkeys(one for node in nodes for one in node.all_input_nodes)
        for source in [one for one in reads if one in known and known[one] is one and one.name not in self._inputs]:
            self.give(source, made)
        self.order.remove(made)
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
