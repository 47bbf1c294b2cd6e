"""Preserve: fast sets for jobs that need bandwidth, and fast sets left behind by jobs that do not.

The idea is MAPA's (Ranganath et al., SC'21). Its published bandwidth regression is not used: it is not monotone and
leaves some jobs waiting although they fit (`mapa2021` shows it). Here values are exact and every request that fits gets a set.
"""

from kompakt_core.patterns.sets import Masks
from kompakt_core.placement.facts import GpuSetFacts, Keys
from kompakt_core.placement.grouped import GroupFacts


def preserve(facts: GpuSetFacts | GroupFacts, free: int, masks: Masks, sensitive: bool) -> Keys:
    """Sensitive: highest value, then the most NVLink left behind. Insensitive: the other way round."""
    value, second = facts.values(masks)
    left = -facts.left(free, masks)
    first = (-value, -second, left) if sensitive else (left, -value, -second)
    return (*first, *facts.ties(free, masks))
