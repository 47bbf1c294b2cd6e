"""Puts operators into both graphs in place of values that gradients which go on are made of, after those of `rewriting`."""

import heapq
import itertools
from collections.abc import Mapping, Sequence
from typing import Any, Final

import torch

from kompakt_runtime.codec.format import LOSSY
from kompakt_runtime.compiled import operators
from kompakt_runtime.compiled.arrivals import Arrivals
from kompakt_runtime.compiled.graphs import base_of, inputs_of, outputs, reached, set_outputs, uses
from kompakt_runtime.compiled.places import ReadPlace, to_text
from kompakt_runtime.compiled.programs import has_text, to_program
from kompakt_runtime.compiled.sizes import nbytes, order_of
from kompakt_runtime.compiled.slices import BackwardGraph, Slice, numbered, slice_of
from kompakt_runtime.compiled.unknown_sizes import UnknownSizes
from kompakt_runtime.compiled.waiting import WaitingOrder
from kompakt_runtime.compiled.weight_gradients import gradients_of

Node = Any
Graph = Any
# Nodes of the backward graph from the first reader of a value to the last: one copy serves all, and is in memory all the while.
WIDE: Final = 150
SOME: Final = 64  # bytes; of a number or two nothing is won


def readable(
    forward: Graph, backward: Graph, results: int, minimum: int, static: frozenset[int], packed: frozenset[Node]
) -> dict[Node, Slice]:
    """By what the forward graph hands over. results, minimum, static: as of rewriting.rewrite; packed: as of BackwardGraph."""
    every = outputs(forward)
    theirs, saved = {base_of(one) for one in every[:results] if hasattr(one, "op")}, every[results:]
    by_name = inputs_of(backward)
    inputs = inputs_of(forward)
    known = {f"primals_{place + 1}" for place in static}
    moving = reached([node for name, node in inputs.items() if name not in known])
    learnt = reached(_wanting(inputs, backward)) & moving  # neither a mask of attention nor a weight in another type
    graph, sizes, found = backward_graph(forward, backward, static, packed), UnknownSizes(backward), {}
    for made in saved:
        taken = by_name.get(getattr(made, "name", ""))
        own = base_of(made).op != "placeholder" and base_of(made) not in theirs
        if taken is not None and made in learnt and own and _suits(made, minimum):
            slice_ = slice_of(taken, graph) if _near(taken, graph) else None
            value = made.meta["val"]
            if slice_ is not None and has_text(slice_) and _beside(value, slice_) is not None and sizes.known(value.shape):
                found[made] = slice_
    # One storage that two values are views of is freed when both are packed.
    whole = {base_of(made) for made in saved if made not in found and hasattr(made, "op")}
    return {made: one for made, one in found.items() if base_of(made) not in whole}


def backward_graph(
    forward: Graph, backward: Graph, static: frozenset[int], packed: frozenset[Node] = frozenset()
) -> BackwardGraph:
    """static, packed: as of `readable`."""
    known = {f"primals_{place + 1}" for place in static}
    inputs = {name: node for name, node in inputs_of(forward).items() if name in known}
    return BackwardGraph.of(backward, gradients_of(backward, inputs), packed)


def _wanting(inputs: Mapping[str, Node], backward: Graph) -> list[Node]:
    """The inputs of the forward graph that a gradient is made for."""
    names = (f"primals_{place + 1}" for place, node in enumerate(outputs(backward)) if hasattr(node, "op"))
    return [inputs[name] for name in names if name in inputs]


def trained(forward: Graph, backward: Graph, static: frozenset[int]) -> set[Node]:
    """The parameters that a gradient is made for. static: as of rewriting.rewrite."""
    inputs = inputs_of(forward)
    return set(_wanting({name: inputs[name] for place in static if (name := f"primals_{place + 1}") in inputs}, backward))


def pack_reads(
    forward: Graph, backward: Graph, found: Mapping[Node, Slice], static: frozenset[int], told: Mapping[Node, Arrivals]
) -> int:
    """Rewrites both graphs. found: as of `apart`; static: as of rewriting.rewrite; told: as of `arrivals`. Returns how many
    values are packed.
    """
    places = {node: place for place, node in enumerate(backward.nodes)}
    programs = _programs(found)
    others, handed, tickets = _asks_for_inputs(backward, static), dict[Node, Node](), dict[Node, Node]()
    for (slice_, number), made in zip(numbered(found.values()), found, strict=True):
        place, names = _place(slice_, number, others, told[made])
        handed[made] = _ticket(forward, made, place, names)
        tickets[slice_.taken] = _taken(backward, slice_, handed[made])
        places[tickets[slice_.taken]] = places[slice_.taken]
    set_outputs(forward, (handed.get(one, one) for one in outputs(forward)))
    sizes = UnknownSizes(backward)
    for made, slice_ in found.items():
        _read(backward, made, slice_, programs[made], tickets, places, sizes.of(made.meta["val"].shape))
    _at_the_beginning(backward, places)
    for taken in tickets:
        backward.erase_node(taken)
    _sort(backward, places)
    return len(tickets)


def apart(found: Mapping[Node, Slice], backward: Graph) -> dict[Node, Slice]:
    """Without those that would wait for one that waits for them: all that reads a value waits for what is read beside it, but for
    what the graph is handed, which is there, or another value's ticket.
    """
    order = WaitingOrder(backward.nodes)
    return {made: one for made, one in found.items() if order.wait(list(one.taken.users), _made_there(one))}


def _made_there(slice_: Slice) -> list[Node]:
    return [one for one in slice_.inputs if one.op != "placeholder"]


def _programs(found: Mapping[Node, Slice]) -> dict[Node, str]:
    """A layer whose operand only the backward graph has is measured by the first of those that know it."""
    programs, known = {}, set[Node]()
    for made, slice_ in found.items():
        mine = {one.node for one in (*slice_.operands, *slice_.given)} - known
        known |= mine
        programs[made] = to_program(slice_, mine)
    return programs


def _near(taken: Node, graph: BackwardGraph) -> bool:
    """May one copy serve all that reads it?"""
    places = [graph.places[user] for user, _ in uses(taken)]
    return bool(places) and max(places) - min(places) <= WIDE


def _suits(made: Node, minimum: int) -> bool:
    value = made.meta.get("val")
    suits = isinstance(value, torch.Tensor) and value.dtype in LOSSY and nbytes(value) >= max(minimum, SOME)
    return suits and bool(order_of(value.shape, value.stride()))


def _beside(value: Any, slice_: Slice) -> Node | None:
    """What is on the value's device while it is read."""
    tensors = (one for one in slice_.moving if isinstance(one.meta.get("val"), torch.Tensor))
    return next((one for one in tensors if one.meta["val"].device == value.device), None)


def _asks_for_inputs(backward: Graph, static: frozenset[int]) -> bool:
    given = [place for place, node in enumerate(outputs(backward)) if hasattr(node, "op")]
    return any(place not in static for place in given)


def _place(slice_: Slice, number: int, others: bool, told: Arrivals) -> tuple[ReadPlace, list[str]]:
    """With the names of the parameters that are handed over with it."""
    linear = dict.fromkeys([slice_.parameter, *(one.parameter for one in (*slice_.operands, *slice_.given))])
    at = {name: place for place, name in enumerate(dict.fromkeys([*linear, *told.names]))}
    operands, given = (tuple(at[one.parameter] for one in every) for every in (slice_.operands, slice_.given))
    targets = tuple(tuple(at[name] for name in names) for names in told.targets)
    sources = tuple((place, tuple(at[name] for name in names)) for place, names in told.sources)
    place = ReadPlace(slice_.kind, number, len(linear), operands, given, others, len(at), targets, sources)
    return place, [*at, *(name for _, name in slice_.leaves)]


def _ticket(forward: Graph, made: Node, place: ReadPlace, names: Sequence[str]) -> Node:
    """In the forward graph, made as soon as the value is. names: of parameters."""
    inputs = inputs_of(forward)
    with forward.inserting_after(made):
        ticket = forward.call_function(operators.PACK_READ, (made, [], to_text(place), operators.LATER))
    with forward.inserting_before(ticket):
        ticket.update_arg(1, [view_of(forward, inputs[name]) for name in names])
    with made.meta["val"].fake_mode:
        ticket.meta["val"] = torch.empty((), dtype=torch.int64)
    return ticket


def _taken(backward: Graph, slice_: Slice, ticket: Node) -> Node:
    """The ticket in the backward graph."""
    with backward.inserting_before(slice_.taken):
        taken = backward.placeholder(f"{slice_.taken.name}_ticket")
    taken.meta["val"] = ticket.meta["val"]
    return taken


def view_of(graph: Any, parameter: Node) -> Node:
    """Of its first element. The compiler may hand over a parameter itself as a copy in another layout, a view by stride never."""
    view = graph.call_function(torch.ops.aten.as_strided.default, (parameter, [1], [1]))
    view.meta["val"] = parameter.meta["val"].as_strided([1], [1])
    return view


def _at_the_beginning(graph: Graph, places: dict[Node, int]) -> None:
    """What was put behind the inputs since places were counted."""
    last = max(places[node] for node in graph.nodes if node.op == "placeholder")
    places.update({node: last for node in graph.nodes if node not in places})


def _read(
    backward: Graph,
    made: Node,
    slice_: Slice,
    program: str,
    tickets: dict[Node, Node],
    places: dict[Node, int],
    sizes: Sequence[Any],
) -> None:
    """One copy for all readers, when what they read beside it is there."""
    value, inputs = made.meta["val"], [tickets.get(one, one) for one in slice_.inputs]
    mine = [place for place, one in enumerate(slice_.inputs) if one in tickets]
    like = slice_.inputs.index(_beside(value, slice_) or slice_.inputs[0])
    kind = str(value.dtype).removeprefix("torch.")
    order = order_of(value.shape, value.stride()) or []
    first = min(slice_.taken.users, key=lambda node: places.get(node, len(places)))
    with backward.inserting_before(first):
        arguments = (inputs, mine, program, sizes, order, kind, like)
        unpacked = backward.call_function(operators.UNPACK_READ, (tickets[slice_.taken], *arguments))
    unpacked.meta["val"] = slice_.taken.meta["val"]
    places[unpacked] = places[first]
    slice_.taken.replace_all_uses_with(unpacked)


def _sort(graph: Graph, places: dict[Node, int]) -> None:
    """What is read waits for what it is read with; everything else keeps its order. Raises ValueError where one waits for another
    that waits for it.
    """
    at = {node: (places[node], place) for place, node in enumerate(graph.nodes)}
    missing = {node: len(node.all_input_nodes) for node in graph.nodes}
    ready = [(at[node], node) for node, count in missing.items() if not count]
    heapq.heapify(ready)
    ordered = []
    while ready:
        _, node = heapq.heappop(ready)
        ordered.append(node)
        for user in node.users:
            missing[user] -= 1
            if not missing[user]:
                heapq.heappush(ready, (at[user], user))
    if len(ordered) < len(missing):
        raise ValueError("values wait for each other")
    for before, node in itertools.pairwise(ordered):
        before.append(node)
