"""The best spanning tree of every GPU set at once.

Prim's algorithm (Bell System Technical Journal 36, 1957), all sets in step. A spanning tree with the greatest sum also
has the fastest slowest link (Hu, Operations Research 9(6), 1961), so one sweep serves both measures.
"""

import numpy as np

from kompakt_core.patterns.sets import NOWHERE, UNLIMITED, Matrix, Values, by_count


def best_trees(weights: Matrix) -> tuple[Values, Values]:
    """For every set: the sum and the slowest link of its best spanning tree; 0 and UNLIMITED without links."""
    size = len(weights)
    sums = np.zeros(1 << size, dtype=np.int64)
    slowest = np.full(1 << size, UNLIMITED, dtype=np.int64)
    for count, sets in enumerate(by_count(size)):
        if count > 1:
            sums[sets], slowest[sets] = _grow(weights, sets, count)
    return sums, slowest


def _grow(weights: Matrix, sets: Values, count: int) -> tuple[Values, Values]:
    rows = np.arange(len(sets))
    members = (sets[:, None] >> np.arange(len(weights)) & 1).astype(bool)
    joined = members.argmax(axis=1)  # the lowest GPU is the root
    outside = members.copy()
    outside[rows, joined] = False
    reach = weights[joined]
    sums = np.zeros(len(sets), dtype=np.int64)
    slowest = np.full(len(sets), UNLIMITED, dtype=np.int64)
    for _ in range(count - 1):
        joined = np.where(outside, reach, NOWHERE).argmax(axis=1)
        link = reach[rows, joined]
        sums += link
        slowest = np.minimum(slowest, link)
        outside[rows, joined] = False
        reach = np.maximum(reach, weights[joined])
    return sums, slowest


def tree_order(weights: Matrix) -> list[int]:
    """The GPUs as the best spanning tree grows from GPU 0: each is joined to one before it. One and more GPUs."""
    order = [0]
    reach = weights[0].copy()
    for _ in range(len(weights) - 1):
        reach[order] = NOWHERE
        order.append(int(reach.argmax()))
        reach = np.maximum(reach, weights[order[-1]])
    return order
