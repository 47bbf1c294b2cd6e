"""In which order a pattern uses the GPUs of a set: around the ring, along the chain, a star's centre first."""

from collections.abc import Callable, Mapping
from typing import Final

import numpy as np

from kompakt_core.errors import Bug
from kompakt_core.patterns import pairs, paths, trees
from kompakt_core.patterns.names import Measure, Pattern
from kompakt_core.patterns.sets import Matrix


def embedding_order(pattern: Pattern, weights: Matrix, measure: Measure, slowest: int) -> list[int]:
    """Positions 0..k-1 of a set's GPUs in the order of its best embedding; `slowest` = the set's bottleneck value."""
    if pattern not in _ORDERS:
        raise Bug(f"pattern {pattern} has no order in patterns/orders.py; CONTRIBUTING.md lists what a new pattern needs")
    if len(weights) < 2:
        return list(range(len(weights)))
    return _ORDERS[pattern](weights, measure, slowest)


def _by_index(weights: Matrix, measure: Measure, slowest: int) -> list[int]:
    return list(range(len(weights)))


def _star_order(weights: Matrix, measure: Measure, slowest: int) -> list[int]:
    centre = pairs.star_centre(avoiding(weights), bottleneck=measure is Measure.BOTTLENECK)
    return [centre, *(i for i in range(len(weights)) if i != centre)]


def _tree_order(weights: Matrix, measure: Measure, slowest: int) -> list[int]:
    return trees.tree_order(weights)


def _ring_order(weights: Matrix, measure: Measure, slowest: int) -> list[int]:
    return paths.ring_order(_allowed(weights, measure, slowest)) if len(weights) > 2 else [0, 1]


def _chain_order(weights: Matrix, measure: Measure, slowest: int) -> list[int]:
    return paths.chain_order(_allowed(weights, measure, slowest)) if len(weights) > 2 else [0, 1]


def _allowed(weights: Matrix, measure: Measure, slowest: int) -> Matrix:
    """The links that an embedding of the set's value may use; none prefers the others."""
    least = slowest if measure is Measure.BOTTLENECK else 0
    return np.where(weights >= least, weights, barrier(weights))


_ORDERS: Final[Mapping[Pattern, Callable[[Matrix, Measure, int], list[int]]]] = {
    Pattern.RING: _ring_order,
    Pattern.CHAIN: _chain_order,
    Pattern.TREE: _tree_order,
    Pattern.STAR: _star_order,
    Pattern.CLIQUE: _by_index,
    Pattern.ALL_TO_ALL: _by_index,
    Pattern.NONE: _by_index,
}


def barrier(weights: Matrix) -> int:
    """A weight so low that no path, ring, tree or star prefers it to any real links: below minus their greatest sum."""
    return -(len(weights) * int(weights.max(initial=0)) + 1)


def avoiding(weights: Matrix) -> Matrix:
    """The links, forbidden ones so low that they are taken only where nothing else joins the set."""
    return np.where(weights < 0, barrier(weights), weights)
