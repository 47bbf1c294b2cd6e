"""What everything here asks of the compiler's graphs: how an operator is called, what is a view, which values come out. Pure.

Graphs are of ATen operators, as AOTAutograd hands them to a partitioner and gets them back. Names of operators are compared, not
objects, so that nothing of the compiler is loaded for this.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
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
    return _name(node.target)


@lru_cache(maxsize=4096)  # operators make their names anew each time
def _name(target: Any) -> str:
    return getattr(target, "__name__", "") if not hasattr(target, "_schema") else str(target)


def uses(value: Node) -> Iterator[tuple[Node, Node]]:
    """What reads a value, also through views of it, and what it reads."""
    for user in value.users:
        if name_of(user) in VIEWS | TURNS | THEMSELVES:
            yield from uses(user)
        else:
            yield user, value


def reached(
    nodes: Iterable[Node],
    step: Callable[[Node], Iterable[Node]] = lambda node: node.users,
    within: Callable[[Node], bool] = lambda _: True,
) -> set[Node]:
    """These, and what steps lead to, as far as they are within. step: to all that read it, if nothing is said."""
    found = {node for node in nodes if within(node)}
    waiting = list(found)
    while waiting:
        fresh = {node for node in step(waiting.pop()) if node not in found and within(node)}
        found |= fresh
        waiting += fresh
    return found


def base_of(node: Node) -> Node:
    """The node that made the storage."""
    while name_of(node) in ALIASES or (name_of(node) == "getitem" and name_of(node.args[0]) in ALIASES):
        node = node.args[0]
    return node


def is_itself(operand: Node, value: Node) -> bool:
    while operand is not value and name_of(operand) in THEMSELVES:
        operand = operand.args[0]
    return operand is value


def inputs_of(graph: Graph) -> dict[str, Node]:
    """By name, in no order."""
    return {node.name: node for node in graph.find_nodes(op="placeholder", sort=False)}


def outputs(graph: Graph) -> list[Any]:
    return list(graph.output_node().args[0])


def set_outputs(graph: Graph, every: Iterable[Any]) -> None:
    """These outputs instead."""
    output = graph.output_node()
    output.args = (list(every), *output.args[1:])
