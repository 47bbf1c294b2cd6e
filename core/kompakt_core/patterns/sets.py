"""All GPU sets of a machine at once, as numpy arrays indexed by bitmask."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[np.signedinteger[Any]]  # a number for each of 2^n sets, or of some of them
Matrix = npt.NDArray[np.int64]  # n x n, symmetric, 0 on the diagonal
Masks = npt.NDArray[np.int64]  # GPU sets

UNLIMITED = 1 << 60  # the smallest of no links
NOWHERE = -(1 << 60)  # the largest of no links


def matrix(weights: Sequence[Sequence[int]]) -> Matrix:
    """Rows of MB/s as an array; n x n also for n = 0."""
    return np.array(weights, dtype=np.int64).reshape(len(weights), len(weights))


@lru_cache(maxsize=32)
def by_count(size: int) -> tuple[Masks, ...]:
    """The sets of `size` GPUs, grouped by how many GPUs they hold: 0, 1, ..., size; ascending."""
    masks = np.arange(1 << size, dtype=np.int64)
    counts = np.bitwise_count(masks)
    return tuple(masks[counts == count] for count in range(size + 1))


@lru_cache(maxsize=32)
def highest(size: int) -> Values:
    """The highest GPU of every set; 0 for the empty one."""
    return over_members(np.arange(size), np.maximum, 0)


def over_members(row: npt.NDArray[np.int64], operation: np.ufunc, start: int) -> Values:
    """`operation` over row[i] of all members i of every set; `start` for the empty set."""
    values = np.array([start], dtype=np.int64)
    for one in row:
        values = np.concatenate([values, operation(values, one)])
    return values


def compact(values: Values) -> Values:
    """The same numbers in as few bytes as hold them and their negatives, read-only."""
    largest = max(int(values.max(initial=0)), -int(values.min(initial=0)))
    dtype = next(one for one in (np.int8, np.int16, np.int32, np.int64) if largest <= np.iinfo(one).max)
    packed: Values = values.astype(dtype)
    packed.setflags(write=False)
    return packed
