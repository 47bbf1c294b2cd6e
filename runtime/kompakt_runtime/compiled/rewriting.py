"""Puts the operators into both graphs of a compiled region, in place of values that only gradients of parameters are made of."""

import copy
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, Final

import torch

from kompakt_runtime.compiled import operators
from kompakt_runtime.compiled.arrivals import arrivals
from kompakt_runtime.compiled.convolutions import split
from kompakt_runtime.compiled.derived import derive
from kompakt_runtime.compiled.graphs import THEMSELVES, TURNS, VIEWS, base_of, inputs_of, name_of, outputs, set_outputs
from kompakt_runtime.compiled.masks import SUFFIX as BITS
from kompakt_runtime.compiled.masks import to_bits
from kompakt_runtime.compiled.packable import SavedValue, layout_of, packable
from kompakt_runtime.compiled.reading import apart, backward_graph, pack_reads, readable, trained, view_of
from kompakt_runtime.compiled.signs import hand_over
from kompakt_runtime.compiled.sizes import nbytes, sizes_of
from kompakt_runtime.compiled.slices import Slice
from kompakt_runtime.compiled.weight_gradients import SignRead, WeightGradient, onward, to_text

Node = Any
Graph = Any
PACKS: Final = (operators.PACK, operators.PACK_READ)
BESIDE: Final = 3  # an argument of both


def rewrite(
    forward: Any,
    backward: Any,
    results: int,
    minimum: int,
    lossy: bool,
    static: frozenset[int] | None = None,
) -> int:
    """Rewrites both graph modules, or, where that fails, none. results: how many outputs of the forward graph are the user's;
    minimum: bytes of the smallest value worth packing; lossy: not masks alone; static: which inputs of the forward graph are
    parameters and buffers, None where what is read for gradients that go on stays. Returns how many are packed.
    """
    stay, plain = set[str](), set[str]()
    while True:
        graphs = copy.deepcopy(forward.graph), copy.deepcopy(backward.graph)
        again = _MadeAgain.of(*graphs, results, minimum, static, stay, plain) if lossy and static is not None else NOTHING
        masks = to_bits(*graphs, results, minimum)
        found, others = _chosen(*graphs, results, minimum, static) if lossy else ([], {})
        wrong = _unmeasured(again.before, found, others) | again.left - stay
        idle = again.idle(others) & stay
        if wrong <= stay and idle <= plain:
            break
        stay |= wrong
        plain |= idle
    told = arrivals(others, backward_graph(*graphs, static)) if static is not None else {}
    for value in found:
        _replace(*graphs, value)
    read = pack_reads(*graphs, others, static, told) if static is not None and others else 0
    _say_beside(graphs[0], results)
    for graph in graphs:
        graph.lint()
    if found or masks or read:
        forward.graph, backward.graph = graphs
    return len(found) + masks + read


@dataclass(frozen=True)
class _MadeAgain:
    """Before masks become bits, which values are made again of too. before: what products alone read, as it was; masks: names of
    what is handed over of signs, by the value's; left: values that are handed over still.
    """

    before: Sequence[SavedValue]
    masks: Mapping[str, AbstractSet[str]]
    left: AbstractSet[str]

    @staticmethod
    def of(
        forward: Graph, backward: Graph, results: int, minimum: int, static: frozenset[int], stay: AbstractSet[str],
        plain: AbstractSet[str],
    ) -> "_MadeAgain":  # fmt: skip
        """stay: names of what is handed over as before; plain: of what signs are asked of as before as well."""
        split(backward)
        masks = hand_over(forward, backward, results, minimum, plain)
        before = packable(forward, backward, results, minimum)
        derive(forward, backward, results, minimum, {value.made for value in before}, stay, trained(forward, backward, static))
        return _MadeAgain(before, masks, masks.keys() & {getattr(made, "name", "") for made in outputs(forward)[results:]})

    def idle(self, others: Mapping[Node, Slice]) -> set[str]:
        """Whose signs nobody needs apart, as nothing is packed that could not be without."""
        read = {one.name.removesuffix(BITS) for slice_ in others.values() for one in slice_.inputs}
        return {name for name in self.left if self.masks[name].isdisjoint(read)}


NOTHING: Final = _MadeAgain([], {}, frozenset())


def _chosen(
    forward: Graph, backward: Graph, results: int, minimum: int, static: frozenset[int] | None
) -> tuple[list[SavedValue], dict[Node, Slice]]:
    """What is packed, by who reads it."""
    found = packable(forward, backward, results, minimum)
    if static is None:
        return found, {}
    packed, given = {value.made for value in found}, frozenset(value.taken for value in found)
    others = readable(forward, backward, results, minimum, static, given)
    # What is made of one that is packed so has another copy beside it.
    return found, apart(
        {made: one for made, one in others.items() if made not in packed and not given & set(one.inputs)}, backward
    )


def _unmeasured(before: Sequence[SavedValue], found: Sequence[SavedValue], others: Mapping[Node, Slice]) -> set[str]:
    """Which more must be handed over as they are: what is made again is not seen but by a part of the graph that it is made in,
    and a layer of which nothing is seen would bear any error.
    """
    seen = {name for value in found for name in _layers(value)}
    seen |= {one.parameter for slice_ in others.values() for one in (*slice_.operands, *slice_.given)}
    return {value.made.name for value in before if not seen.issuperset(_layers(value))}


def _layers(value: SavedValue) -> set[str]:
    return {one.parameter for group in value.read for one in group}


def _say_beside(forward: Any, results: int) -> None:
    """The first value that is handed over says what is kept as it is."""
    first = next((node for node in forward.nodes if node.target in PACKS), None)
    if first is not None:
        kept = [one for one in outputs(forward)[results:] if getattr(one, "target", None) not in PACKS]
        first.update_arg(BESIDE, _beside(kept))


def _beside(saved: Sequence[Node]) -> int:
    """Bytes of values that are no inputs, each storage once."""
    tensors = [one for one in saved if hasattr(one, "op") and isinstance(one.meta.get("val"), torch.Tensor)]
    bases = {base_of(one): one.meta["val"] for one in tensors}
    return sum(nbytes(value) for base, value in bases.items() if base.op != "placeholder")


def _replace(forward: Any, backward: Any, value: SavedValue) -> None:
    ticket = _ticket(forward, value, [one for group in value.read for one in group])
    with backward.inserting_before(value.taken):
        taken = backward.placeholder(f"{value.taken.name}_ticket")
    taken.meta["val"] = ticket.meta["val"]
    first = 0
    for group in value.read:
        unpacked = _serve(backward, value, taken, group, first)
        first += len(group)
        for one, by in value.signs:
            if by is group:
                _view(backward, one, unpacked, sizes_of(value.source.meta["val"]))
    _erase(backward, value.taken)


def _ticket(graph: Any, value: SavedValue, read: list[WeightGradient]) -> Node:
    """As soon as the value is made: whatever reads it in the forward graph may be the last then."""
    inputs = inputs_of(graph)
    how = to_text([one.read for one in read])
    with graph.inserting_after(value.source):
        ticket = graph.call_function(operators.PACK, (value.source, [], how, operators.LATER))
    with graph.inserting_before(ticket):
        ticket.update_arg(1, [view_of(graph, inputs[one.parameter]) for one in read])
    with value.made.meta["val"].fake_mode:
        ticket.meta["val"] = torch.empty((), dtype=torch.int64)
    set_outputs(graph, (ticket if one is value.made else one for one in outputs(graph)))
    return ticket


def _serve(backward: Any, value: SavedValue, taken: Node, group: list[WeightGradient], first: int) -> Node:
    """One copy for these readers, when the gradients at all their outputs are there."""
    last = group[-1].node
    with backward.inserting_before(last):
        unpacked = backward.call_function(
            operators.UNPACK, (taken, [one.delta for one in group], first, *(layout_of(value.source, group[0]) or ()))
        )
        unpacked.meta["val"] = operators.empty(group[0].delta.meta["val"], *unpacked.args[3:])
        for one in group:
            _give(one, _turn(backward, unpacked) if one.transposed else unpacked)
    places = {node: place for place, node in enumerate(backward.nodes)}
    later = {node for one in group[:-1] for node in onward(one.node) if places[node] < places[last]}
    point = last
    for node in sorted(later, key=lambda node: places[node]):
        point.append(node)
        point = node
    return unpacked


def _view(graph: Any, sign: SignRead, unpacked: Node, shape: list[int]) -> None:
    """A product's copy is a matrix."""
    if unpacked.meta["val"].dim() == len(shape):
        return _give(sign, unpacked)
    with graph.inserting_before(sign.node):
        view = graph.call_function(torch.ops.aten.view.default, (unpacked, shape))
    view.meta["val"] = unpacked.meta["val"].view(shape)
    return _give(sign, view)


def _give(reader: WeightGradient | SignRead, operand: Node) -> None:
    """In place of what it reads. Raises ValueError for another shape, as far as sizes are known."""
    before, after = reader.operand.meta["val"].shape, operand.meta["val"].shape
    both = [(a, b) for a, b in zip(before, after, strict=True) if isinstance(a, int) and isinstance(b, int)]
    if any(a != b for a, b in both):
        raise ValueError(f"{reader.node} reads {tuple(before)}, not {tuple(after)}")
    reader.node.replace_input_with(reader.operand, operand)


def _turn(graph: Any, matrix: Node) -> Node:
    turned = graph.call_function(torch.ops.aten.permute.default, (matrix, [1, 0]))
    turned.meta["val"] = matrix.meta["val"].permute(1, 0)
    return turned


def _erase(graph: Any, node: Node) -> None:
    """With the views that nobody reads any more. Raises RuntimeError where anything else reads it still."""
    for user in list(node.users):
        if name_of(user) in VIEWS | TURNS | THEMSELVES:
            _erase(graph, user)
    graph.erase_node(node)
