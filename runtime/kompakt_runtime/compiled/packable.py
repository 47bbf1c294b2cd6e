"""Which values that a compiled forward graph hands over only gradients of parameters read, and which copy serves whom. Pure."""

from dataclasses import dataclass
from typing import Any, Final

import torch

from kompakt_runtime.codec.format import LOSSY
from kompakt_runtime.compiled.graphs import TURNS, base_of, inputs_of, name_of, outputs
from kompakt_runtime.compiled.sizes import nbytes, order_of, sizes_of
from kompakt_runtime.compiled.weight_gradients import LEFT, PRODUCT, SignRead, WeightGradient, gradients_of, readers

Node = Any
Graph = Any
Layout = tuple[int, list[int], list[int]]  # the dimension of rows in the output's gradient, sizes of a row, order of dimensions
# Of the backward graph: readers of one value that are no farther apart are served by one copy. What is farther off would keep the
# gradients at the first one's output in memory until the last one runs.
NEAR: Final = 100


@dataclass(frozen=True, eq=False)
class SavedValue:
    """made: what the forward graph hands over; source: what is packed, which is that, or the matrix that it is a turn of; taken:
    the input of the backward graph; read, signs: by these, and by nothing else. Those that one copy serves are together; a reader
    of signs stands with those whose copy it gets.
    """

    made: Node
    source: Node
    taken: Node
    read: list[list[WeightGradient]]
    signs: list[tuple[SignRead, list[WeightGradient]]]


def packable(forward: Any, backward: Any, results: int, minimum: int) -> list[SavedValue]:
    """Values that nothing but gradients of parameters reads, and whose memory nobody else keeps."""
    every = outputs(forward)
    theirs, saved = {base_of(one) for one in every[:results] if hasattr(one, "op")}, every[results:]
    by_name = inputs_of(backward)
    inputs = inputs_of(forward)
    gradients, found = gradients_of(backward, inputs), {}
    places = {node: place for place, node in enumerate(backward.nodes)}
    for made in saved:
        taken, base, source = by_name.get(made.name), base_of(made), _straight(made)
        if taken is None or base.op == "placeholder" or base in theirs or not _suits(source, minimum):
            continue
        read, signs = readers(taken, gradients, turned=source is not made) or ([], [])
        groups = _near(read, places)
        known = all(one.parameter in inputs and layout_of(source, one) is not None for one in read)
        served = [(one, _served(one, source, groups, places)) for one in signs]
        if read and known and all(group is not None for _, group in served):
            found[made] = SavedValue(made, source, taken, groups, served)
    # One storage that two values are views of is freed when both are packed.
    whole = {base_of(made) for made in saved if made not in found}
    return [value for made, value in found.items() if base_of(made) not in whole]


def _straight(made: Node) -> Node:
    """What `x.T` is saved for is `x`."""
    return made.args[0] if name_of(made) in TURNS and made.meta["val"].dim() == 2 else made


def _suits(made: Node, minimum: int) -> bool:
    value = made.meta.get("val")
    return isinstance(value, torch.Tensor) and value.dtype in LOSSY and nbytes(value) >= minimum


def layout_of(made: Node, read: WeightGradient) -> Layout | None:
    """What `unpack` is told of the copy, None if that is not known. A product reads a matrix, a convolution the value itself."""
    shape, order = made.meta["val"].shape, [0, 1]
    tail = shape[-1:] if read.read.place == LEFT else shape[1:]
    if read.read.place != LEFT:
        order = order_of(shape, made.meta["val"].stride()) or []
    return (int(read.read.turned), list(tail), order) if order and all(isinstance(size, int) for size in tail) else None


def _served(sign: SignRead, source: Node, groups: list[list[WeightGradient]], places: dict[Node, int]) -> Any:
    """The readers whose copy is there before it and can be viewed as the value; None where there are none, or only far off."""
    before = [group for group in groups if 0 < places[sign.node] - places[group[-1].node] <= NEAR]
    return before[-1] if before and sizes_of(source.meta["val"]).count(-1) < 2 else None


def _near(read: list[WeightGradient], places: dict[Node, int]) -> list[list[WeightGradient]]:
    """Readers by which copy serves them; a convolution has one of its own, since it makes the gradient that goes on as well."""
    groups: list[list[WeightGradient]] = []
    for one in sorted(read, key=lambda one: places[one.node]):
        first = groups[-1][0] if groups else None
        movable = first is not None and all(str(reader.node.target) == PRODUCT for reader in (first, one))
        if movable and first is not None and places[one.node] - places[first.node] <= NEAR:
            groups[-1].append(one)
        else:
            groups.append([one])
    return groups
