"""Patterns made of fixed pairs: all pairs of a set (Clique, AllToAll), or one centre and the rest (Star)."""

import numpy as np

from kompakt_core.patterns.sets import NOWHERE, UNLIMITED, Matrix, Values, over_members


def pair_sums(weights: Matrix) -> Values:
    """For every set of n GPUs: the sum of `weights` over all pairs inside it. n * 2^n additions."""
    sums = np.zeros(1, dtype=np.int64)
    for top, row in enumerate(weights):
        # Sets whose highest GPU is `top`: each smaller set plus `top` and its links into that set.
        sums = np.concatenate([sums, sums + over_members(row[:top], np.add, 0)])
    return sums


def pair_minima(weights: Matrix) -> Values:
    """For every set: the smallest of `weights` over all pairs inside it; UNLIMITED without pairs."""
    minima = np.full(1, UNLIMITED, dtype=np.int64)
    for top, row in enumerate(weights):
        minima = np.concatenate([minima, np.minimum(minima, over_members(row[:top], np.minimum, UNLIMITED))])
    return minima


def best_stars(weights: Matrix, operation: np.ufunc) -> Values:
    """For every set: over its best centre, the sum (np.add) or the smallest (np.minimum) of the centre's links."""
    size = len(weights)
    masks = np.arange(1 << size)
    best = np.full(1 << size, NOWHERE, dtype=np.int64)
    start = 0 if operation is np.add else UNLIMITED
    for centre, row in enumerate(weights):
        own = row.copy()
        own[centre] = start  # no link to itself
        reached = over_members(own, operation, start)
        best = np.where(masks >> centre & 1, np.maximum(best, reached), best)
    return best


def star_centre(weights: Matrix, bottleneck: bool) -> int:
    """The GPU of a set of two and more that is its best centre; of equals the lowest.

    `bottleneck`: by the slowest link, then the sum; else by the sum, then the slowest link.
    """

    def gain(centre: int) -> tuple[int, int]:
        links = np.delete(weights[centre], centre)
        slowest, total = int(links.min()), int(links.sum())
        return (slowest, total) if bottleneck else (total, slowest)

    return max(range(len(weights)), key=lambda centre: (gain(centre), -centre))
