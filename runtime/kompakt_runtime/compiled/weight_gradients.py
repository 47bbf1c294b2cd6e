"""Which values that a compiled forward graph hands to its backward graph are read for gradients of parameters only, or for signs
as well, as a ReLU's output is. Pure.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final

from kompakt_runtime.compiled.graphs import THEMSELVES, TURNS, VIEWS, is_itself, name_of, outputs, uses

Node = Any
Graph = Any

# Through which a parameter's gradient goes on unchanged, but for rounding, or as one part of a sum.
ONWARD: Final = VIEWS | TURNS | {
    "prims.convert_element_type.default", "aten._to_copy.default", "aten.clone.default", "aten.add.Tensor",
}  # fmt: skip
PRODUCT: Final = "aten.mm.default"
# Ask which elements are greater than zero: copies keep zeros and signs. By which argument, and where the number stands.
SIGNS: Final = {"aten.le.Scalar": (0, 1), "aten.gt.Scalar": (0, 1), "aten.threshold_backward.default": (1, 2)}
CONVOLUTION: Final = "aten.convolution_backward.default"
LEFT: Final = "AddmmBackward0.mat1"
CONVOLVED: Final = "ConvolutionBackward0.input"
BEHIND: Final = 30  # nodes; who is farther off lends no name
INPUT, STRIDE, TRANSPOSED, GROUPS_END = 1, 4, 7, 10  # arguments of CONVOLUTION


@dataclass(frozen=True)
class ReadAs:
    """How an operator of the backward graph reads a value for a parameter's gradient; as sigma.Contraction says it. turned: the
    output's gradient stands there with its channels first.
    """

    place: str
    outputs_at: int | None
    turned: bool = False
    arguments: tuple[Any, ...] = ()


@dataclass(frozen=True, eq=False)
class WeightGradient:
    """One operator of the backward graph. operand: what it reads of the value, or of a view of it; delta: the gradient at the
    output; parameter: the name of the forward graph's input.
    """

    node: Node
    operand: Node
    delta: Node
    parameter: str
    read: ReadAs

    @property
    def transposed(self) -> bool:
        """Is the operand read with its features first?"""
        return self.read.place == LEFT and self.node.args[0] is self.operand


@dataclass(frozen=True, eq=False)
class SignRead:
    """One operator that asks for signs. operand: as of WeightGradient."""

    node: Node
    operand: Node


Reads = tuple[list[WeightGradient], list[SignRead]]


def to_text(reads: Sequence[ReadAs]) -> str:
    """For an operator's argument."""
    return json.dumps([[one.place, one.outputs_at, one.turned, one.arguments] for one in reads])


@lru_cache(maxsize=4096)
def of_text(text: str) -> tuple[ReadAs, ...]:
    """As `to_text` wrote it."""
    return tuple(
        ReadAs(place, outputs_at, turned, tuple(tuple(a) if isinstance(a, list) else a for a in arguments))
        for place, outputs_at, turned, arguments in json.loads(text)
    )


def gradients_of(backward: Graph, inputs: Mapping[str, Node]) -> dict[Node, set[str]]:
    """The inputs of the forward graph, by name, that each output of the backward graph is the gradient of."""
    found: dict[Node, set[str]] = {}
    for place, node in enumerate(outputs(backward)):
        given = inputs.get(f"primals_{place + 1}")
        if given is not None and hasattr(node, "op") and given.meta["val"].shape == node.meta["val"].shape:
            found.setdefault(node, set()).add(given.name)
    return found


def readers(value: Node, gradients: Mapping[Node, set[str]], turned: bool = False) -> Reads | None:
    """Of a value that the backward graph is handed; None where anything else reads it as well, or no gradient is made of it.
    turned: the value is a matrix with its features first.
    """
    found, signs = list[WeightGradient](), list[SignRead]()
    for node, operand in uses(value):
        if asks_for_signs(node, operand) and is_itself(operand, value) and not turned:
            signs.append(SignRead(node, operand))
            continue
        read = linear_read(node, operand, value, turned, gradients)
        if read is None:
            return None
        found.append(read)
    return (found, signs) if found else None


def linear_read(
    node: Node, operand: Node, value: Node, turned: bool, gradients: Mapping[Node, set[str]]
) -> WeightGradient | None:
    """How a product or a convolution reads an operand, which is a view of the value, if for nothing but one parameter's gradient.
    turned: as of `readers`.
    """
    read = _product(node, operand, value, turned) if name_of(node) == PRODUCT else _convolution(node, operand, value)
    onward = None if read is None else _parameter(read[1], gradients)
    if read is None or onward is None:
        return None
    (delta, _, how), (parameter, turns) = read, onward
    at = None if how.outputs_at is None or turns is None else how.outputs_at ^ turns % 2
    return WeightGradient(node, operand, delta, parameter, replace(how, outputs_at=at))


def parameter_of(delta: Node, gradients: Mapping[Node, set[str]]) -> str:
    """Of the first product that makes a parameter's gradient of this one, also behind products of attention; "" without any."""
    waiting = [delta]
    for one in waiting:
        for node, _ in uses(one):
            found = of_weight(node, gradients)
            if found is not None:
                return found[0]
            if node not in waiting and len(waiting) < BEHIND:
                waiting.append(node)
    return ""


def of_weight(node: Node, gradients: Mapping[Node, set[str]]) -> tuple[str, int | None] | None:
    """As of `_parameter`, of a product or a convolution."""
    result = weight_result(node) if name_of(node) == CONVOLUTION else node
    return _parameter(result, gradients) if result is not None and name_of(node) in (PRODUCT, CONVOLUTION) else None


def weight_result(node: Node) -> Node | None:
    """The gradient of a convolution's weight."""
    return next((one for one in node.users if name_of(one) == "getitem" and one.args[1] == 1), None)


def asks_for_signs(node: Node, operand: Node) -> bool:
    """Of this operand, and nothing else of it."""
    argument, number = SIGNS.get(name_of(node), (0, 0))
    read = [place for place, one in enumerate(node.args) if one is operand]
    return bool(number) and read == [argument] and node.args[number] == 0 and not node.kwargs


def onward(node: Node) -> Iterator[Node]:
    """What is made of a parameter's gradient, without the output; one by one, for of other gradients that is nearly all."""
    found = {node: None}
    waiting = [node]
    for one in waiting:
        yield one
        fresh = dict.fromkeys(user for user in one.users if user.op != "output" and user not in found)
        found |= fresh
        waiting += fresh


def _product(node: Node, operand: Node, value: Node, from_start: bool) -> tuple[Node, Node, ReadAs] | None:
    """delta.T @ x, or x.T @ delta, where x has as many features as the value."""
    turned = _turned(operand, value, from_start)
    if turned is None or node.args[0] is node.args[1] or _features(operand, turned) != _features(value, from_start):
        return None
    if turned:  # features are a parameter's rows
        return (node.args[1], node, ReadAs(LEFT, 1)) if node.args[0] is operand else None
    if node.args[1] is not operand:
        return None
    delta = node.args[0]
    straight = name_of(delta) in TURNS and delta.args[0]
    return (straight, node, ReadAs(LEFT, 0)) if straight else (delta, node, ReadAs(LEFT, 0, turned=True))


def _turned(operand: Node, value: Node, turned: bool) -> bool | None:
    """Is a view of a value turned? None where anything but a matrix is, and where a turned one is viewed in another shape."""
    chain = []
    while operand is not value:
        chain.append(operand)
        operand = operand.args[0]
    for view in reversed(chain):
        if name_of(view) in THEMSELVES:
            continue
        turns = name_of(view) in TURNS
        if (turns and view.meta["val"].dim() != 2) or (turned and not turns):
            return None
        turned ^= turns
    return turned


def _features(matrix: Node, turned: bool) -> int | Node:
    """How many; where that is not known, something that is equal to nothing else."""
    shape = matrix.meta["val"].shape
    features = shape[0 if turned else -1] if len(shape) else None
    return features if isinstance(features, int) else matrix


def _convolution(node: Node, operand: Node, value: Node) -> tuple[Node, Node, ReadAs] | None:
    """Of the input of a convolution only the weight's gradient is made."""
    read = [place for place, one in enumerate(node.args) if one is operand]
    if name_of(node) != CONVOLUTION or read != [INPUT] or not is_itself(operand, value):
        return None
    result = weight_result(node)
    arguments = tuple(tuple(one) if hasattr(one, "__len__") else one for one in node.args[STRIDE:GROUPS_END])
    if result is None or not all(isinstance(number, int) for number in _numbers(arguments)):
        return None
    return node.args[0], result, ReadAs(CONVOLVED, None if node.args[TRANSPOSED] else 0, False, arguments)


def _numbers(arguments: tuple[Any, ...]) -> Iterator[Any]:
    for one in arguments:
        yield from one if isinstance(one, tuple) else (one,)


def _parameter(result: Node, gradients: Mapping[Node, set[str]]) -> tuple[str, int | None] | None:
    """Whose gradient the result is, and how often it is turned on the way (None: it is viewed in another shape); None where it is
    anything else as well.
    """
    names: set[str] = set()
    turns: int | None = 0
    for node in onward(result):
        if node is not result and (name_of(node) not in ONWARD or "alpha" in node.kwargs):
            return None
        if node is not result and name_of(node) in TURNS:
            turns = None if turns is None else turns + 1
        if node is not result and name_of(node) in VIEWS:
            turns = None
        names |= gradients.get(node, set()) if any(user.op == "output" for user in node.users) else set()
    return (names.pop(), turns) if len(names) == 1 else None
