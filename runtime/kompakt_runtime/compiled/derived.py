"""Values that a backward graph can make again of others that it is handed anyway, so that nobody keeps them.

The compiler's own division counts bytes of values as they are: a product's operand is in memory in any case, so it hands that
over as well. Where all are packed, an operand takes as much as what it is made of.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final

import torch

from kompakt_runtime.codec.format import LOSSY
from kompakt_runtime.compiled.graphs import ALIASES, THEMSELVES, TURNS, VIEWS, base_of, inputs_of, name_of, outputs, set_outputs
from kompakt_runtime.compiled.sizes import nbytes, sizes_of
from kompakt_runtime.compiled.slices import ITEM, is_size, runs_again
from kompakt_runtime.compiled.unknown_sizes import UnknownSizes

Node = Any
Graph = Any
Known = Callable[[Node], Any]  # a node, or None
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
    handed = _Inputs(backward, every[results:], learnt)
    for made in [one for one in handed.nodes if _suits(one, minimum) and base_of(one) not in theirs and one.name not in stay]:
        known = handed.kept.beside(made)
        nodes = None if handed.kept.is_shared(made) else _makers(made, known, linear, handed.sizes)
        if nodes is not None:
            handed.make(made, nodes, known)
    for made in handed.nodes:
        source = _source(made)
        if source is not None and handed.takes(source):
            handed.give(source, made)
            known = {source: source}.get
            handed.make(made, _makers(made, known, set(), handed.sizes) or [], known)
    set_outputs(forward, [*every[:results], *handed.order])
    return len(set(every[results:]) - set(handed.order))


def _free(learnt: AbstractSet[Node], handed: Sequence[Node]) -> AbstractSet[Node]:
    """Parameters that may be handed over as well, since they are in memory in any case. Where none is yet, an update between the
    passes, which nobody would notice without us, would become an error.
    """
    return learnt if not learnt.isdisjoint(handed) else set()


class _Kept:
    """What is handed over, by what it is a view of all of. weights: parameters that may be handed over as well.

    It changes with each value that is made again: looking through all that is handed over for each of them would take time that
    grows with the square of the number of layers.
    """

    def __init__(self, handed: Iterable[Node], weights: AbstractSet[Node]) -> None:
        self._weights, self._views = weights, defaultdict[Node, list[Node]](list)
        self._bases = Counter[Node]()
        for one in handed:
            self.add(one)

    def add(self, one: Node) -> None:
        self._bases[base_of(one)] += 1
        for node in _viewed(one):
            self._views[node].append(one)

    def drop(self, one: Node) -> None:
        self._bases[base_of(one)] -= 1
        for node in _viewed(one):
            self._views[node].remove(one)

    def is_shared(self, made: Node) -> bool:
        """Does more that is handed over lie in the same memory?"""
        return self._bases[base_of(made)] > 1

    def beside(self, made: Node) -> Known:
        """All but that one."""

        def known(node: Node) -> Node | None:
            views = [one for one in self._views.get(node, ()) if one is not made]
            itself = node in views or (not views and node in self._weights)
            return node if itself else next(iter(views), None)

        return known


class _Inputs:
    """What the backward graph is handed. order: as the forward graph hands it over; sizes among it are numbers or nodes."""

    def __init__(self, backward: Graph, handed: Sequence[Any], learnt: AbstractSet[Node]) -> None:
        self._graph, self.order = backward, list(handed)
        self._inputs = inputs_of(backward)
        self.kept, self.sizes = _Kept(self.nodes, _free(learnt, self.nodes)), UnknownSizes(backward)

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
        self.kept.add(source)
        self.order.insert(self.order.index(made), source)

    def make(self, made: Node, nodes: Sequence[Node], known: Known) -> None:
        """By these operators, where it is read first. known: as of `_makers`."""
        reads = dict.fromkeys(one for node in nodes for one in node.all_input_nodes)
        for source in [one for one in reads if known(one) is one and one.name not in self._inputs]:
            self.give(source, made)
        self.order.remove(made)
        self.kept.drop(made)
        taken, copies = self._inputs.pop(made.name), dict[Node, Node]()
        first = min(taken.users)  # nodes compare by their places
        with self._graph.inserting_before(first):

            def given(node: Node) -> Node:
                source = known(node)
                if node not in copies and source is not None:
                    kept = self._inputs[source.name]
                    copies[node] = kept if source is node else self._view(kept, node)
                elif node not in copies and is_size(node):
                    (copies[node],) = self.sizes.of([node.meta["val"]])
                return copies[node]

            for node in nodes:
                copies[node] = self._graph.node_copy(node, given)
        taken.replace_all_uses_with(copies[made])
        self._graph.erase_node(taken)

    def _view(self, kept: Node, like: Node) -> Node:
        sizes = sizes_of(like.meta["val"])
        shape = sizes if sizes.count(-1) < 2 else self.sizes.of(like.meta["val"].shape)
        node = self._graph.call_function(torch.ops.aten.reshape.default, (kept, shape))
        node.meta["val"] = like.meta["val"]
        return node


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


def _viewed(one: Node) -> list[Node]:
    """It, and what it is a view of all of."""
    found = [one]
    while name_of(found[-1]) in VIEWS | THEMSELVES:
        found.append(found[-1].args[0])
    return found


def _makers(made: Node, known: Known, linear: AbstractSet[Node], sizes: UnknownSizes) -> list[Node] | None:
    """The operators that make it of what is known, in order; None where others would have to run as well. known: what is handed
    over of a value, which that is or is a view of; sizes: of the backward graph.
    """
    found, waiting = dict[Node, None](), [made]
    while waiting:
        node = waiting.pop()
        source = None if node is made else known(node)
        if node in found or (source is not None and source not in linear):
            continue
        if is_size(node) and sizes.known([node.meta["val"]]):
            continue
        if len(found) == MOST or source is not None or not _is_cheap(node):
            return None
        found[node] = None
        waiting += node.all_input_nodes
    return sorted(found)  # nodes compare by their places


def _is_cheap(node: Node) -> bool:
    if node.op != "call_function" or not runs_again(node):
        return False
    pointwise = torch.Tag.pointwise in getattr(node.target, "tags", ())
    return pointwise or name_of(node) in ALIASES or name_of(node).startswith(CHEAP)
