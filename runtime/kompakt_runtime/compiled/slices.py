"""What a compiled backward graph makes of a value that gradients which go on are made of: the part of the graph from the value to
the gradients that the next products are given. Pure.

Autograd has one node for each such operation, which can be run again with noise. A graph has none, but this part can.
"""

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch

from kompakt_runtime.compiled.branches import branches, is_part, joins
from kompakt_runtime.compiled.graphs import TURNS, base_of, inputs_of, name_of, reached, uses
from kompakt_runtime.compiled.weight_gradients import PRODUCT, WeightGradient, linear_read, parameter_of

Node = Any
Graph = Any

PRODUCTS: Final = frozenset({
    "aten.mm.default", "aten.bmm.default", "aten.addmm.default", "aten.baddbmm.default", "aten.convolution.default",
    "aten.convolution_backward.default",
})  # fmt: skip
SCATTERS: Final = ("embedding", "index_put", "scatter_add", "index_add")
ITEM: Final = "getitem"
MOMENTS: Final = frozenset({"aten.var_mean.correction"})  # of another value; a norm's result is made again with them
EQUALS: Final = ("aten.eq.", "aten.ne.")  # what is equal to a value is not to its copy, as the largest number is to itself
ARITHMETIC: Final = frozenset({"add", "sub", "mul", "truediv", "floordiv"})  # of Python, with sizes
STRIDED: Final = "aten.as_strided.default"  # tells of memory, which inputs of an operator may have in another order
MOST: Final = 400  # nodes; nobody runs more than that once more


@dataclass(frozen=True, eq=False)
class Slice:
    """nodes: to be run, in order; inputs: what they read besides the value; moving: those of them that gradients went into;
    deltas: gradients that go on; leaves: gradients of parameters, as a norm's, with their names; operands: what the value is
    made into for products that make a parameter's gradient; parameter: the name of one, to call the place by; given:
    products that read one of the deltas and what is kept as it is, as an input of the forward graph.
    """

    taken: Node
    nodes: list[Node]
    inputs: list[Node]
    moving: list[Node]
    deltas: list[Node]
    leaves: list[tuple[Node, str]]
    operands: list[WeightGradient]
    parameter: str
    given: list[WeightGradient]

    @property
    def kind(self) -> str:
        """For the table of layers."""
        names = [name_of(node) for node in self.nodes]
        if any("attention" in name for name in names):
            return "attention"
        return "norm" if any(name.startswith(("aten.sum", "aten.mean", "aten.var")) for name in names) else "pointwise"


@dataclass(frozen=True, eq=False)
class BackwardGraph:
    """places: of all nodes, in order; moving: those that gradients went into; deltas: of these what a product reads, or a view of
    it; branches: as of branches.branches; gradients: as of weight_gradients.gradients_of; packed: inputs that are packed by what
    their layers bear.
    """

    places: Mapping[Node, int]
    moving: set[Node]
    deltas: set[Node]
    branches: Mapping[Node, Sequence[Node]]
    gradients: Mapping[Node, set[str]]
    packed: frozenset[Node]

    @staticmethod
    def of(graph: Graph, gradients: Mapping[Node, set[str]], packed: frozenset[Node] = frozenset()) -> "BackwardGraph":
        places = {node: place for place, node in enumerate(graph.nodes)}
        given = [node for name, node in inputs_of(graph).items() if name.startswith("tangents")]
        moving = reached(given)
        products = [node for node in places if ends(node)]
        deltas = {base_of(read) for node in products for read in node.all_input_nodes if read in moving} & moving
        return BackwardGraph(places, moving, deltas, branches(deltas, moving), gradients, packed)


def ends(node: Node) -> bool:
    """Is a gradient that this reads one for the next layer to bear?"""
    name = name_of(node)
    return name in PRODUCTS or name.startswith("kompakt.") or any(scatter in name for scatter in SCATTERS)


def slice_of(taken: Node, graph: BackwardGraph) -> Slice | None:
    """From this input of the backward graph; None where anything is in it that cannot be run once more."""
    found = _Found({taken: None}, {}, [], [])
    for node in _readers(found, graph):
        reads = [one for one in node.all_input_nodes if one in found.inside and one not in found.deltas]
        if reads and is_part(node, reads, graph.moving):
            found.deltas.update(dict.fromkeys(reads))
        elif not all(_joins(one, node, graph) for one in reads) and not _add(found, node, graph):
            return None
    given = [read for delta in found.deltas for node, _ in uses(delta) if (read := _given(node, graph)) is not None]
    before = _pulled(found, given, graph)
    parameter = found.parameter(graph.gradients)
    if before is None or not parameter:
        return None
    wanted = set(found.inside) - {taken} | before.nodes
    moving = [one for one in before.inputs if one in graph.moving]
    if len(wanted) > MOST or not moving:
        return None
    nodes = sorted(wanted, key=lambda node: graph.places[node])
    return Slice(taken, nodes, list(before.inputs), moving, list(found.deltas), found.leaves, found.operands, parameter, given)


def _joins(gradient: Node, node: Node, graph: BackwardGraph) -> bool:
    return gradient in graph.branches and joins(gradient, node, graph.moving)


def _readers(found: "_Found", graph: BackwardGraph) -> Iterator[Node]:
    """Of the value, and of what is put inside meanwhile, in the graph's order."""
    waiting, seen = list[tuple[int, Node]](), set[Node]()
    follow = list(found.inside)
    while follow or waiting:
        for user in (user for node in follow for user in node.users if user not in seen):
            seen.add(user)
            heapq.heappush(waiting, (graph.places[user], user))
        if not waiting:
            return
        _, node = heapq.heappop(waiting)
        yield node
        follow = [node] if node in found.inside and node not in found.deltas else []


@dataclass(frozen=True, eq=False)
class _Found:
    inside: dict[Node, None]
    deltas: dict[Node, None]
    leaves: list[tuple[Node, str]]
    operands: list[WeightGradient]

    def parameter(self, gradients: Mapping[Node, set[str]]) -> str:
        """Of a layer: a norm's weight alone is none whose bound would say what errors it bears."""
        named = (parameter_of(delta, gradients) for delta in self.deltas)
        return next((name for name in (*named, *(one.parameter for one in self.operands)) if name), "")


@dataclass(frozen=True, eq=False)
class _Before:
    nodes: set[Node]
    inputs: dict[Node, None]


def _add(found: _Found, node: Node, graph: BackwardGraph) -> bool:
    """False where the node is nothing that this can do with."""
    if node.op == "output":
        return _end(found, node, graph)
    read = [one for one in node.all_input_nodes if one in found.inside and one not in found.deltas]
    if name_of(node) in PRODUCTS and len(read) == 1 and (linear := _linear(node, read[0], graph)) is not None:
        found.operands.append(linear)
        return True
    if not runs_again(node) or name_of(node).startswith(EQUALS):
        return False
    found.inside[node] = None
    if node in graph.deltas:
        found.deltas[node] = None
    return True


def _linear(node: Node, operand: Node, graph: BackwardGraph) -> WeightGradient | None:
    turned = name_of(operand) in TURNS and operand.meta["val"].dim() == 2
    return linear_read(node, operand, operand.args[0] if turned else operand, False, graph.gradients)


def _given(node: Node, graph: BackwardGraph) -> WeightGradient | None:
    """How a product reads what is kept as it is for a parameter's gradient."""
    bases = ((one, base_of(one)) for one in node.all_input_nodes if one not in graph.moving)
    operands = [one for one, base in bases if base.op == "placeholder" and base not in graph.packed]
    return _linear(node, operands[0], graph) if name_of(node) == PRODUCT and len(operands) == 1 else None


def _end(found: _Found, output: Node, graph: BackwardGraph) -> bool:
    """What the backward graph gives: gradients of parameters, and of what else wants one."""
    for node in output.all_input_nodes:
        if node in found.inside and node not in found.deltas:
            names = graph.gradients.get(node, set())
            if len(names) == 1:
                found.leaves.append((node, next(iter(names))))
            else:
                found.deltas[node] = None
    return True


def runs_again(node: Node) -> bool:
    """Has no effect but its result, which depends on nothing but what it reads."""
    if name_of(node) == ITEM:
        return True
    target = node.target
    if node.op != "call_function" or getattr(target, "namespace", "") not in ("aten", "prims") or name_of(node) == STRIDED:
        return False
    return not target._schema.is_mutable and torch.Tag.nondeterministic_seeded not in target.tags


def _pulled(found: _Found, given: Sequence[WeightGradient], graph: BackwardGraph) -> _Before | None:
    """What the nodes inside read besides, back to what is in memory anyway; None where that depends on the value itself."""
    before, after = _Before(set(), {}), _after(found, given, graph)
    waiting = [one for node in found.inside if node.op != "placeholder" for one in node.all_input_nodes]
    waiting += [node for one in (*found.operands, *given) for node in (one.operand, one.delta)]
    while waiting:
        node = waiting.pop()
        known = node in found.inside or node in before.nodes or node in before.inputs
        if known or (is_size(node) and not is_arithmetic(node)):
            continue
        if node in after and base_of(node) not in found.deltas:
            return None
        if _in_memory(node, graph) and not is_arithmetic(node):
            before.inputs[node] = None
        else:
            before.nodes.add(node)
            waiting += node.all_input_nodes
    return before


def _after(found: _Found, given: Sequence[WeightGradient], graph: BackwardGraph) -> set[Node]:
    """What depends on the value, as far as the last that reads here: in a graph of many layers that is a small part."""
    readers = (*found.inside, *(one.node for one in (*found.operands, *given)))
    last = max(graph.places[node] for node in readers)
    return reached([next(iter(found.inside))], within=lambda node: graph.places[node] <= last)


def is_size(node: Node) -> bool:
    """Of a tensor, or a number made of one, where it is not known before the graph runs."""
    return isinstance(node.meta.get("val"), int | float | torch.SymInt | torch.SymFloat)


def is_arithmetic(node: Node) -> bool:
    """Is it a number made of sizes?"""
    return is_size(node) and node.op == "call_function" and name_of(node) in ARITHMETIC


def _in_memory(node: Node, graph: BackwardGraph) -> bool:
    several = name_of(node) == ITEM and base_of(node) is node and name_of(node.args[0]) not in MOMENTS
    handed = node in graph.deltas or node in graph.branches
    return node.op == "placeholder" or several or ends(node) or handed or not runs_again(node)


def numbered(slices: Iterable[Slice]) -> Iterator[tuple[Slice, int]]:
    """Each with its number among those of its parameter and kind."""
    counts: dict[tuple[str, str], int] = {}
    for one in slices:
        key = one.parameter, one.kind
        counts[key] = counts.get(key, 0) + 1
        yield one, counts[key]
