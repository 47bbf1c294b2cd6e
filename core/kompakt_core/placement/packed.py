"""Packed: fill broken islands before breaking whole ones."""

from kompakt_core.placement.facts import Facts, Rank


def packed(facts: Facts, free: int, mask: int, sensitive: bool) -> Rank:
    """Fewest islands that were wholly free and now lose only a part; then the highest value.

    Islands are groups joined by NVLink, by a PCIe switch, or by a NUMA node.
    """
    broken = sum(1 for island in facts.islands if island & free == island and 0 != island & mask != island)
    return (broken, -facts.value(mask), *facts.ties(free, mask))
