"""A graph of imports in layers: each node stands one above the highest that it imports; a circle is one node."""

from collections.abc import Mapping, Set
from dataclasses import dataclass

import networkx as nx

Imports = Mapping[str, Set[str]]


@dataclass(frozen=True, slots=True)
class Node:
    """Modules or packages that import each other in a circle, mostly a single one; `below` are its nearest imports."""

    members: tuple[str, ...]
    below: tuple[str, ...]

    @property
    def title(self) -> str:
        return " = ".join(self.members)


def layered(imports: Imports) -> list[list[Node]]:
    """The layers from the top down. Imports that follow from others on the way are left out of `below`."""
    graph: nx.DiGraph[str] = nx.DiGraph()
    graph.add_nodes_from(sorted(imports))
    graph.add_edges_from((name, other) for name in imports for other in imports[name] & imports.keys() if other != name)
    circles = nx.condensation(graph)
    nearest = nx.transitive_reduction(circles)
    members = {node: tuple(sorted(circles.nodes[node]["members"])) for node in circles}
    height: dict[int, int] = {}
    for node in reversed(list(nx.topological_sort(circles))):
        height[node] = 1 + max((height[below] for below in circles.successors(node)), default=-1)
    rows: list[list[Node]] = [[] for _ in range(1 + max(height.values(), default=-1))]
    for node in circles:
        below = sorted(" = ".join(members[other]) for other in nearest.successors(node))
        rows[height[node]].append(Node(members[node], tuple(below)))
    return [sorted(row, key=lambda node: node.title) for row in reversed(rows)]
