"""Sums over the pairs of every GPU set at once."""

from collections.abc import Sequence


def pair_sums(weights: Sequence[Sequence[int]]) -> list[int]:
    """For every set m of n GPUs (bitmask, 2^n of them): the sum of `weights` over all pairs inside m.

    `weights` is symmetric, n x n. Work: n * 2^n additions.
    """
    sums = [0]
    for top, row in enumerate(weights):
        # Sets whose highest GPU is `top`: each smaller set plus `top` and its links into that set.
        joins = [0]
        for other in range(top):
            joins += [join + row[other] for join in joins]
        sums += [below + join for below, join in zip(sums, joins, strict=True)]
    return sums
