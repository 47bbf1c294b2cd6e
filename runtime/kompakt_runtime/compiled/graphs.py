"""What everything here asks of the compiler's graphs: how an operator is called, what is a view, which values come out. Pure.

Graphs are of ATen operators, as AOTAutograd hands them to a partitioner and gets them back. Names of operators are compared, not
objects, so that nothing of the compiler is loaded for this.
"""

from collections.abc import Iterator
from typing import Any, Final

Node = Any
Graph = Any

VIEWS: Final = frozenset({"aten.view.default", "aten.reshape.default", "aten._unsafe_view.default"})
TURNS: Final = frozenset({"aten.permute.default", "aten.t.default", "aten.transpose.int"})
THEMSELVES: Final = frozenset({"aten.alias.default", "aten.detach.default"})
ALIASES: Final = VIEWS | TURNS | THEMSELVES | {
    "aten.expand.default", "aten.select.int", "aten.slice.Tensor",
    "aten.split.Tensor", "aten.split_with_sizes.default", "aten.squeeze.dim", "aten.unsqueeze.default",
    "aten.as_strided.default",
}  # fmt: skip


def name_of(node: Node) -> str:
    return getattr(node.target, "__name__", "") if not hasattr(node.target, "_schema") else str(node.target)


def uses(value: Node) -> Iterator[tuple[Node, Node]]:
    """What reads a value, also through views of it, and what it reads."""
    for user in value.users:
        if name_of(user) in VIEWS | TURNS | THEMSELVES:
            yield from uses(user)
        else:
            yield user, value


def base_of(node: Node) -> Node:
    """The node that made the storage."""
    while name_of(node) in ALIASES or (name_of(node) == "getitem" and name_of(node.args[0]) in ALIASES):
        node = node.args[0]
    return node


def is_itself(operand: Node, value: Node) -> bool:
    while operand is not value and name_of(operand) in THEMSELVES:
        operand = operand.args[0]
    return operand is value


def outputs(graph: Graph) -> list[Any]:
    return list(next(node for node in graph.nodes if node.op == "output").args[0])
