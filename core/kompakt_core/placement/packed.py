"""Packed: fill broken islands before breaking whole ones."""

import numpy as np

from kompakt_core.patterns.sets import Masks
from kompakt_core.placement.facts import Facts, Keys


def packed(facts: Facts, free: int, masks: Masks, sensitive: bool) -> Keys:
    """Fewest islands that were wholly free and now lose only a part; then the highest value.

    Islands are groups joined by NVLink, by a PCIe switch, or by a NUMA node.
    """
    broken = np.zeros(len(masks), dtype=np.int64)
    for island in facts.islands:
        if island & free == island:
            taken = island & masks
            broken += (taken != 0) & (taken != island)
    value, second = facts.values(masks)
    return (broken, -value, -second, *facts.ties(free, masks))
