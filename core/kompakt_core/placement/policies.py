"""The placement policies, one row each: how a GPU set is chosen among those of one size that fit.

Preserve's idea is MAPA's (Ranganath et al., SC'21). Its published bandwidth regression is not used: it is not monotone and
leaves some jobs waiting although they fit (`mapa2021` shows it). Here values are exact and every request that fits gets a set.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from kompakt_core.patterns.sets import Masks
from kompakt_core.placement.facts import GpuSetFacts, Keys
from kompakt_core.placement.grouped import GroupFacts
from kompakt_core.placement.model import PlacementPolicy

# The contract of a policy, called as policy(facts, free, masks, sensitive):
# 1. It gives the keys by which sets of one size within `free` are compared, the most important first, smaller is better.
# 2. Two different sets differ in some key, and the same inputs give the same keys.
# 3. It never refuses: a set that is allowed and the only one is chosen.
PlacementRule = Callable[[GpuSetFacts | GroupFacts, int, Masks, bool], Keys]


def best(facts: GpuSetFacts | GroupFacts, free: int, masks: Masks, sensitive: bool) -> Keys:
    """Highest value; of equals the set that leaves the most NVLink among the GPUs still free."""
    value, second = facts.values(masks)
    return (-value, -second, -facts.left(free, masks), *facts.ties(free, masks))


def preserve(facts: GpuSetFacts | GroupFacts, free: int, masks: Masks, sensitive: bool) -> Keys:
    """Sensitive: highest value, then the most NVLink left behind. Insensitive: the other way round."""
    value, second = facts.values(masks)
    left = -facts.left(free, masks)
    first = (-value, -second, left) if sensitive else (left, -value, -second)
    return (*first, *facts.ties(free, masks))


def packed(facts: GpuSetFacts | GroupFacts, free: int, masks: Masks, sensitive: bool) -> Keys:
    """Fewest islands that were wholly free and now lose only a part; then the highest value, then the most NVLink left behind.

    Islands are groups joined by NVLink, by a PCIe switch, or by a NUMA node.
    """
    value, second = facts.values(masks)
    return (facts.broken(free, masks), -value, -second, -facts.left(free, masks), *facts.ties(free, masks))


def lowest_indices(facts: GpuSetFacts | GroupFacts, free: int, masks: Masks, sensitive: bool) -> Keys:
    """Lowest GPU indices, as a scheduler without topology would number them: a baseline to compare with."""
    return (facts.by_index(free, masks),)


POLICIES: Final[Mapping[PlacementPolicy, PlacementRule]] = MappingProxyType(
    {
        PlacementPolicy.BEST: best,
        PlacementPolicy.PRESERVE: preserve,
        PlacementPolicy.PACKED: packed,
        PlacementPolicy.FIRST: lowest_indices,
    }
)
