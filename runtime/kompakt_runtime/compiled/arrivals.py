"""At which layers errors arrive that gradients carry through a part of a compiled backward graph. Pure."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kompakt_runtime.compiled.graphs import base_of, name_of, reached, uses
from kompakt_runtime.compiled.slices import ITEM, BackwardGraph, Slice, ends
from kompakt_runtime.compiled.weight_gradients import of_weight

Node = Any
Names = tuple[str, ...]
Sources = tuple[tuple[int, Names], ...]


@dataclass(frozen=True)
class Arrivals:
    """Of one part, by names of parameters. targets: for each of its deltas the layers at whose outputs that is the gradient;
    sources: for each of its inputs that gradients went into, its place among the inputs, and the layers at whose outputs the
    gradient was that it is made of, none where it comes from outside. No sources where another part with these deltas has them.
    """

    targets: tuple[Names, ...]
    sources: Sources

    @property
    def names(self) -> Names:
        every = (*self.targets, *(names for _, names in self.sources))
        return tuple(dict.fromkeys(name for names in every for name in names))


def arrivals(found: Mapping[Node, Slice], graph: BackwardGraph) -> dict[Node, Arrivals]:
    """found: as of reading.apart, whose keys these have too. A layer is told of where its gradient is one delta alone, and a part
    gives it that knows all that errors come from.
    """
    by_taken = {one.taken: one for one in found.values()}
    layers, done, given = _layers(graph), set[Node](), dict[Node, Sources]()
    for made, slice_ in found.items():
        sources = _sources(slice_, graph) if _knows_all(slice_, by_taken) else None
        fresh = {delta for delta in slice_.deltas if delta in layers} - done if sources is not None else set()
        given[made] = sources if sources is not None and fresh else ()
        done |= fresh
    targets = {made: tuple(layers[delta] if delta in done else () for delta in one.deltas) for made, one in found.items()}
    return {made: Arrivals(targets[made], given[made]) for made in found}


def _layers(graph: BackwardGraph) -> dict[Node, Names]:
    """By delta, the layers whose one gradient it is."""
    deltas = defaultdict[str, set[Node]](set)
    for node in graph.places:
        found = of_weight(node, graph.gradients)
        if found is not None:
            deltas[found[0]] |= {base_of(one) for one in node.all_input_nodes if one in graph.moving}
    names = defaultdict[Node, list[str]](list)
    for name, every in deltas.items():
        if len(every) == 1:
            names[next(iter(every))].append(name)
    return {delta: tuple(every) for delta, every in names.items()}


def _knows_all(slice_: Slice, by_taken: Mapping[Node, Slice]) -> bool:
    """Are the errors that other packed values, which it reads, bring into its deltas told of by the parts that read those?"""
    inside, deltas = {*slice_.nodes, *slice_.inputs}, set(slice_.deltas)
    others = (by_taken[node] for node in slice_.inputs if node in by_taken)
    return all(reached([one.taken], within=inside.__contains__) & deltas <= set(one.deltas) for one in others)


def _sources(slice_: Slice, graph: BackwardGraph) -> Sources | None:
    """None where what one of them is made of is the gradient at no layer's output."""
    found, inside = [], set(slice_.nodes)
    for place, node in enumerate(slice_.inputs):
        if node in graph.moving and not inside.isdisjoint(node.users):
            deltas = list(_deltas(node, graph))
            names = [tuple(_names(delta, graph)) for delta in deltas]
            if not all(names) or (not deltas and node.op != "placeholder"):
                return None
            found.append((place, tuple(dict.fromkeys(name for every in names for name in every))))
    return tuple(found)


def _deltas(node: Node, graph: BackwardGraph) -> Iterator[Node]:
    """What an input is made of: itself, what is made of it for a layer, or what the product reads that made it."""
    if node in graph.deltas:
        yield node
        return
    if node in graph.branches:
        yield from graph.branches[node]
        return
    product = node.args[0] if name_of(node) == ITEM else node
    if ends(product):
        yield from (base_of(one) for one in product.all_input_nodes if one in graph.moving)


def _names(delta: Node, graph: BackwardGraph) -> list[str]:
    found = (of_weight(node, graph.gradients) for node, _ in uses(delta))
    return [one[0] for one in found if one is not None]
