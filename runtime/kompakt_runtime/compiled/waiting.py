"""The order of a graph's nodes when some wait for others that they do not read. Pure."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from kompakt_runtime.compiled.graphs import reached

Node = Any


class WaitingOrder:
    """Each node stands behind all that it reads and waits for.

    Renewed only between the nodes that a new wait concerns, as in D. Pearce and P. Kelly, A dynamic topological sort algorithm
    for directed acyclic graphs, ACM JEA 11 (2006), with several edges at once: following the whole graph for each wait would
    take time that grows with the square of the number of layers.
    """

    def __init__(self, nodes: Iterable[Node]) -> None:
        """nodes: in an order in which each stands behind all that it reads."""
        self._at = {node: place for place, node in enumerate(nodes)}
        self._first: dict[Node, list[Node]] = {}  # by who waits
        self._later: dict[Node, list[Node]] = {}  # by what is waited for

    @property
    def at(self) -> Mapping[Node, int]:
        """Where each node stands."""
        return self._at

    def wait(self, later: Collection[Node], first: Collection[Node]) -> bool:
        """From now on all of `later` wait for all of `first`. False where one of `first` waits for one of `later`; then nothing
        changes.
        """
        if later and first:
            last, begin = max(map(self._at.__getitem__, first)), min(map(self._at.__getitem__, later))
            behind = reached(later, self._behind, lambda node: self._at[node] <= last)
            if not behind.isdisjoint(first):
                return False
            before = reached(first, self._before, lambda node: self._at[node] >= begin)
            self._put(before, behind)
        for node in first:
            self._later.setdefault(node, []).extend(later)
        for node in later:
            self._first.setdefault(node, []).extend(first)
        return True

    def _behind(self, node: Node) -> Iterable[Node]:
        return (*node.users, *self._later.get(node, ()))

    def _before(self, node: Node) -> Iterable[Node]:
        return (*node.all_input_nodes, *self._first.get(node, ()))

    def _put(self, before: set[Node], behind: set[Node]) -> None:
        """These in front of those, in the places that they have together: nobody else has to move."""
        places = sorted(self._at[node] for node in before | behind)
        order = [node for group in (before, behind) for node in sorted(group, key=self._at.__getitem__)]
        self._at.update(zip(order, places, strict=True))
