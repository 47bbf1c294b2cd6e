"""A part of a compiled backward graph as text, so that it can be run once more where no compiler is at hand.

Graphs that another process compiled hold it in an operator's argument. It comes from our own partitioner and from the compiler's
cache, which holds code as well.
"""

import json
import operator
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

import torch
from torch.fx.node import map_arg

from kompakt_runtime.compiled.graphs import VIEWS, name_of
from kompakt_runtime.compiled.sizes import made_by, term
from kompakt_runtime.compiled.slices import ARITHMETIC, ITEM, Slice, is_arithmetic, is_size
from kompakt_runtime.compiled.weight_gradients import ReadAs, of_text, to_text

Tensor = Any
Node = Any
Operation = tuple[Any, list[Any], dict[str, Any]]
VALUE: Final = 0  # its number; inputs follow, and then the results of operations
SIZE: Final = "aten.sym_size.int"
WORDS: Final = (torch.dtype, torch.memory_format, torch.layout)


@dataclass(frozen=True)
class OperandRead:
    """How a product reads what the value is made into, or an input. operand, delta: numbers; read: as of weight_gradients;
    features_first: the operand is turned; measured: is it this program by which the layer is measured?
    """

    operand: int
    delta: int
    read: ReadAs
    features_first: bool
    measured: bool


@dataclass(frozen=True)
class SliceProgram:
    """inputs: how many; deltas, leaves: numbers of results; given: products that read inputs."""

    inputs: int
    operations: list[Operation]
    deltas: tuple[int, ...]
    leaves: tuple[int, ...]
    operands: tuple[OperandRead, ...]
    given: tuple[OperandRead, ...]
    _last: dict[int, int] = field(default_factory=dict)  # which operation is the last to read a number

    def run(self, inputs: Sequence[Tensor], value: Tensor) -> dict[int, Tensor]:
        """The results that are asked for, by number."""
        wanted = {
            *self.deltas,
            *self.leaves,
            *(number for one in (*self.operands, *self.given) for number in (one.operand, one.delta)),
        }
        found = dict(enumerate((value, *inputs)))
        for place, (target, arguments, keywords) in enumerate(self.operations):
            given = [_given(one, found, value) for one in arguments]
            found[1 + self.inputs + place] = target(*given, **{name: _given(one, found, value) for name, one in keywords.items()})
            for number in [number for number in found if self._last.get(number, -1) <= place and number not in wanted]:
                del found[number]
        return {number: found[number] for number in wanted}


def to_program(slice_: Slice, measured: Container[Node] = ()) -> str:
    """measured: products of its that it measures. Raises ValueError for what has no text."""
    inputs = slice_.inputs
    numbers = {slice_.taken: VALUE} | {node: 1 + place for place, node in enumerate(inputs)}
    operations: list[Any] = []
    shaped, sizes = _shaped_nodes(slice_)
    terms = _terms(numbers)
    for size in sizes:
        numbers[size] = _size(term(size.meta["val"]), terms, operations, len(inputs))
    for node, (arguments, keywords) in shaped.items():
        operations.append(
            [name_of(node), _text(arguments, numbers), {name: _text(one, numbers) for name, one in keywords.items()}]
        )
        numbers[node] = len(inputs) + len(operations)
    operands, given = (
        [[numbers[one.operand], numbers[one.delta], to_text([one.read]), one.transposed, one.node in measured] for one in every]
        for every in (slice_.operands, slice_.given)
    )
    return json.dumps({
        "inputs": len(inputs), "operations": operations, "operands": operands, "given": given,
        "deltas": [numbers[node] for node in slice_.deltas], "leaves": [numbers[node] for node, _ in slice_.leaves],
    })  # fmt: skip


def has_text(slice_: Slice) -> bool:
    """Some sizes are not known before the graph runs."""
    try:
        to_program(slice_)
    except ValueError:
        return False
    return True


@lru_cache(maxsize=1024)
def of_program(text: str) -> SliceProgram:
    """As `to_program` wrote it."""
    read = json.loads(text)
    operations = [(_target(name), arguments, keywords) for name, arguments, keywords in read["operations"]]
    operands, given = (
        tuple(OperandRead(a, delta, of_text(how)[0], turned, own) for a, delta, how, turned, own in read[name])
        for name in ("operands", "given")
    )
    last = {
        number: place for place, (_, arguments, keywords) in enumerate(operations) for number in _numbers([arguments, keywords])
    }
    made = read["inputs"], operations, tuple(read["deltas"]), tuple(read["leaves"]), operands, given
    return SliceProgram(*made, last)


def _shaped_nodes(slice_: Slice) -> tuple[dict[Node, tuple[Any, Mapping[str, Any]]], list[Node]]:
    """Arguments of the nodes that are run, in order, without arithmetic that nobody reads; and which sizes these read."""
    found, read = {}, dict[Node, None]()
    for node in reversed(slice_.nodes):
        if not is_arithmetic(node) or node in read:
            found[node] = _shaped(node)
            map_arg(found[node], lambda one: read.setdefault(one))
    return dict(reversed(found.items())), [one for one in read if is_size(one) and one not in found]


def _terms(numbers: Mapping[Node, int]) -> dict[Any, list[Any]]:
    """Sizes that are not known: a tensor that is read, and which of its dimensions has each."""
    tensors = [(number, one.meta["val"]) for one, number in numbers.items() if isinstance(one.meta.get("val"), torch.Tensor)]
    return {
        term(size): [{"is": number}, at]
        for number, value in reversed(tensors)
        for at, size in enumerate(value.shape)
        if not isinstance(size, int)
    }


def _size(wanted: Any, terms: Mapping[Any, list[Any]], operations: list[Any], inputs: int) -> int:
    """The number of what computes a size from tensors that are read. Raises ValueError where nothing has it."""
    if wanted in terms:
        operations.append([SIZE, terms[wanted], {}])
        return inputs + len(operations)
    if (by := made_by(wanted)) is None:
        raise ValueError(f"{wanted} is the size of nothing that is read")
    found, *others = [_part(one, terms, operations, inputs) for one in wanted.args]
    for other in others:
        operations.append([by.__name__, [found, other], {}])
        found = {"is": inputs + len(operations)}
    return inputs + len(operations)


def _part(wanted: Any, terms: Mapping[Any, list[Any]], operations: list[Any], inputs: int) -> Any:
    return int(wanted) if wanted.is_Integer else {"is": _size(wanted, terms, operations, inputs)}


def _shaped(node: Node) -> tuple[Any, Mapping[str, Any]]:
    """A view finds one size that is not known."""
    sizes = [size if isinstance(size, int) else -1 for size in node.args[1]] if name_of(node) in VIEWS else []
    return ((node.args[0], sizes) if sizes and sizes.count(-1) < 2 else node.args), node.kwargs


def _text(one: Any, numbers: Mapping[Node, int]) -> Any:
    if one is None or isinstance(one, bool | int | float | str):
        return one
    if isinstance(one, list | tuple):
        return [_text(part, numbers) for part in one]
    if one in numbers:
        return {"is": numbers[one]}
    if isinstance(one, torch.device):
        return {"device": one.type}
    if isinstance(one, WORDS):
        return {"torch": str(one).removeprefix("torch.")}
    raise ValueError(f"{one!r} of type {type(one).__name__} has no text")


def _given(one: Any, found: Mapping[int, Tensor], value: Tensor) -> Any:
    if isinstance(one, list):
        return [_given(part, found, value) for part in one]
    if not isinstance(one, dict):
        return one
    if "is" in one:
        return found[one["is"]]
    if "device" in one:
        return value.device if one["device"] == value.device.type else torch.device(one["device"])
    return getattr(torch, one["torch"])


def _numbers(one: Any) -> list[int]:
    if isinstance(one, dict):
        return [one["is"]] if "is" in one else [number for part in one.values() for number in _numbers(part)]
    return [number for part in one for number in _numbers(part)] if isinstance(one, list) else []


def _target(name: str) -> Any:
    """A view is of whatever layout the compiler hands over."""
    if name in ARITHMETIC | {ITEM}:
        return getattr(operator, name)
    space, packet, overload = name.split(".")
    packet = "reshape" if name in VIEWS else packet
    return getattr(getattr(getattr(torch.ops, space), packet), overload)
