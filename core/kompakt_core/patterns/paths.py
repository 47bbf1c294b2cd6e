"""The best ring and the best chain through every GPU set at once.

Held and Karp's recurrence for tours (J. SIAM 10(1), 1962, section 2), over all sets of n GPUs in one sweep: O(2^n * n^2)
steps. Rings are anchored at the highest GPU of each set. Adding links up (np.add) gives the best sum; taking the smallest
(np.minimum) gives the best bottleneck, since both grow with each of their arguments.
"""

import numpy as np

from kompakt_core.patterns.sets import NOWHERE, UNLIMITED, Matrix, Values, by_count, highest


def best_rings(weights: Matrix, operation: np.ufunc) -> Values:
    """For every set: sum or slowest link of its best ring; of two GPUs their link, once. Sets of fewer: see `_start`."""
    size = len(weights)
    paths = _anchored_paths(weights, operation)
    values = np.full(1 << size, _start(operation), dtype=np.int64)
    for count, sets in enumerate(by_count(size)):
        if count == 2:
            values[sets] = paths[sets].max(axis=1)
        elif count > 2:
            values[sets] = operation(paths[sets], weights[highest(size)[sets]]).max(axis=1)
    return values


def best_chains(weights: Matrix, operation: np.ufunc) -> Values:
    """For every set: sum or slowest link of the best path through all its GPUs."""
    values: Values = _free_paths(weights, operation).max(axis=1, initial=NOWHERE)
    values[0] = _start(operation)
    return values


def ring_order(weights: Matrix) -> list[int]:
    """The best ring by sum through all GPUs of `weights`: from GPU 0 towards its lower neighbour. Three and more GPUs."""
    size = len(weights)
    paths = _anchored_paths(weights, np.add)
    ring = _trace_back(paths, weights, int((paths[-1] + weights[-1]).argmax()))
    start = ring.index(0)
    ring = ring[start:] + ring[:start]
    return ring if ring[1] < ring[-1] else [ring[0], *reversed(ring[1:])] if size > 2 else ring


def chain_order(weights: Matrix) -> list[int]:
    """The best path by sum through all GPUs of `weights`, from its lower end. Two and more GPUs."""
    paths = _free_paths(weights, np.add)
    chain = _trace_back(paths, weights, int(paths[-1].argmax()))
    return chain if chain[0] < chain[-1] else chain[::-1]


def _start(operation: np.ufunc) -> int:
    return 0 if operation is np.add else UNLIMITED


def _anchored_paths(weights: Matrix, operation: np.ufunc) -> Matrix:
    """paths[set, end]: the best path from the set's highest GPU to `end` through the whole set."""
    size = len(weights)
    paths = np.full((1 << size, size), NOWHERE, dtype=np.int64)
    for gpu in range(size):
        paths[1 << gpu, gpu] = _start(operation)
    for sets in by_count(size)[2:]:
        for end in range(size - 1):
            ending = sets[(sets >> end & 1 == 1) & (highest(size)[sets] > end)]
            paths[ending, end] = operation(paths[ending ^ (1 << end)], weights[end]).max(axis=1)
    return paths


def _free_paths(weights: Matrix, operation: np.ufunc) -> Matrix:
    """paths[set, end]: the best path through the whole set that ends at `end`, from wherever."""
    size = len(weights)
    paths = np.full((1 << size, size), NOWHERE, dtype=np.int64)
    for gpu in range(size):
        paths[1 << gpu, gpu] = _start(operation)
    for sets in by_count(size)[2:]:
        for end in range(size):
            ending = sets[sets >> end & 1 == 1]
            paths[ending, end] = operation(paths[ending ^ (1 << end)], weights[end]).max(axis=1)
    return paths


def _trace_back(paths: Matrix, weights: Matrix, end: int) -> list[int]:
    """The path of sums that ends at `end` and holds all GPUs, from there; each step to the lowest GPU that explains it."""
    order, rest = [end], len(paths) - 1
    while rest & (rest - 1):
        value = paths[rest, end]
        rest ^= 1 << end
        end = int((paths[rest] + weights[end] == value).argmax())
        order.append(end)
    return order
