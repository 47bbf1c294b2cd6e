"""Packed: fill broken islands before breaking whole ones."""

from kompakt_core.patterns.sets import Masks
from kompakt_core.placement.facts import GpuSetFacts, Keys
from kompakt_core.placement.grouped import GroupFacts


def packed(facts: GpuSetFacts | GroupFacts, free: int, masks: Masks, sensitive: bool) -> Keys:
    """Fewest islands that were wholly free and now lose only a part; then the highest value, then the most NVLink left behind.

    Islands are groups joined by NVLink, by a PCIe switch, or by a NUMA node.
    """
    value, second = facts.values(masks)
    return (facts.broken(free, masks), -value, -second, -facts.left(free, masks), *facts.ties(free, masks))
