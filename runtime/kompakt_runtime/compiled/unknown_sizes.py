"""Sizes that depend on what a compiled function is called with, as nodes of its backward graph."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import torch

from kompakt_runtime.compiled.sizes import made_by, term

Node = Any
Graph = Any
Term = Any
GRADIENTS: Final = "tangents"  # begins the names of inputs that are gradients of results


class UnknownSizes:
    """Made of inputs of the graph that stay what they are: sizes, gradients, and whole numbers."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        inputs = [node for node in graph.nodes if node.op == "placeholder"]
        self._last: Node = None
        self._given = {wanted: source for node in reversed(inputs) for wanted, source in _terms(node)}
        self._made: dict[Term, Node] = {}

    def known(self, sizes: Sequence[Any]) -> bool:
        """Can nodes be made for all of them?"""
        return all(self._can(term(size)) for size in sizes)

    def of(self, sizes: Sequence[Any]) -> list[Any]:
        """Numbers, and nodes right behind the graph's inputs, for sizes that are `known`."""
        return [size if isinstance(size, int) else self._of(term(size)) for size in sizes]

    def _can(self, wanted: Term) -> bool:
        if isinstance(wanted, int) or wanted.is_Integer or wanted in self._given:
            return True
        return made_by(wanted) is not None and all(map(self._can, wanted.args))

    def _of(self, wanted: Term) -> Any:
        if wanted.is_Integer:
            return int(wanted)
        if wanted not in self._made:
            self._made[wanted] = self._taken(*self._given[wanted]) if wanted in self._given else self._computed(wanted)
        return self._made[wanted]

    def _taken(self, node: Node, dimension: int | None) -> Node:
        return node if dimension is None else self._call(torch.ops.aten.sym_size.int, node, dimension)

    def _computed(self, wanted: Term) -> Node:
        found, *others = map(self._of, wanted.args)
        for other in others:
            found = self._call(made_by(wanted), found, other)
        return found

    def _call(self, target: Any, *arguments: Any) -> Node:
        with self._graph.inserting_before(self._behind()):
            self._last = self._graph.call_function(target, arguments)
        self._last.meta["val"] = target(*(one.meta["val"] if hasattr(one, "meta") else one for one in arguments))
        return self._last

    def _behind(self) -> Node:
        """What comes after the inputs and all that was made so far."""
        return next(node for node in self._graph.nodes if node.op != "placeholder") if self._last is None else self._last.next


def _terms(node: Node) -> Iterator[tuple[Term, tuple[Node, int | None]]]:
    """What an input says of sizes, and which of its dimensions; None: it is one."""
    value = node.meta.get("val")
    if isinstance(value, torch.SymInt):
        yield term(value), (node, None)
    whole = isinstance(value, torch.Tensor) and not value.is_floating_point() and value.dtype != torch.bool
    if whole or node.name.startswith(GRADIENTS):
        yield from ((term(size), (node, at)) for at, size in enumerate(value.shape) if isinstance(size, torch.SymInt))
