"""Custom edge lists: which ranks of a pod talk to each other, and how much."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from kompakt_core.errors import InvalidInput

MAX_RANKS: Final = 16
MAX_EDGES: Final = MAX_RANKS * (MAX_RANKS - 1) // 2
MAX_WEIGHT: Final = 1_000_000
_EDGE = re.compile(r"([0-9]{1,4})-([0-9]{1,4})(?::([0-9]{1,9}))?", re.ASCII)


@dataclass(frozen=True, slots=True, order=True)
class Edge:
    """Ranks a < b of one pod, 0-based. An edge of weight 2 carries twice what one of weight 1 does."""

    a: int
    b: int
    weight: int = 1


Edges = tuple[Edge, ...]  # ordered, each pair once


def make_edges(edges: Iterable[tuple[int, int, int]]) -> Edges:
    """Edges (from, to, weight) in any order and direction; a pair given twice carries both weights.

    Raises InvalidInput: an edge from a rank to itself, ranks beyond 16, weights outside 1 to 10^6, no edge at all.
    """
    weights: dict[tuple[int, int], int] = {}
    for start, end, weight in edges:
        if start == end:
            raise InvalidInput(f"edge {start}-{end}: an edge joins two different ranks")
        if not 0 <= min(start, end) <= max(start, end) < MAX_RANKS:
            raise InvalidInput(f"edge {start}-{end}: ranks run from 0 to {MAX_RANKS - 1}")
        pair = (min(start, end), max(start, end))
        weights[pair] = weights.get(pair, 0) + weight
        if not 1 <= weight <= MAX_WEIGHT:
            raise InvalidInput(f"edge {start}-{end}: its weight must be from 1 to {MAX_WEIGHT}")
    if not weights:
        raise InvalidInput("no edge given; write edges such as 0-1,1-2 or, with weights, 0-1:3")
    return tuple(Edge(a, b, weight) for (a, b), weight in sorted(weights.items()))


def parse_edges(text: str) -> Edges:
    """Edges such as `0-1,1-2:3`: ranks 0 and 1 with weight 1, ranks 1 and 2 with weight 3. InvalidInput as make_edges."""
    found = []
    for number, part in enumerate(text.split(",")):
        match = _EDGE.fullmatch(part.strip())
        if not match:
            raise InvalidInput(
                f"edge {number + 1}: {part.strip()[:40]!r} is none; write edges such as 0-1 or, with a weight, 0-1:3"
            )
        if number >= MAX_EDGES:
            raise InvalidInput(f"more than {MAX_EDGES} edges; {MAX_RANKS} ranks have no more pairs")
        found.append((int(match[1]), int(match[2]), int(match[3] or 1)))
    return make_edges(found)


def text_of(edges: Edges) -> str:
    """The edges as parse_edges reads them."""
    return ",".join(f"{edge.a}-{edge.b}" + (f":{edge.weight}" if edge.weight != 1 else "") for edge in edges)


def inner_edges(edges: Edges, first: int, count: int) -> Edges:
    """The edges among the ranks `first` to `first + count - 1`, numbered anew from 0; none where no edge joins two of them."""
    within = range(first, first + count)
    return tuple(Edge(edge.a - first, edge.b - first, edge.weight) for edge in edges if edge.a in within and edge.b in within)


def ranks_of(edges: Edges) -> int:
    """How many ranks the edges need: the highest one and all below it."""
    return max(edge.b for edge in edges) + 1
