"""Preserve: fast sets for jobs that need bandwidth, and fast sets left behind by jobs that do not.

The idea is MAPA's (Ranganath et al., SC'21). Its published bandwidth regression is not used: it is not monotone and
leaves some jobs waiting although they fit. Here the value is exact and every request that fits gets a set.
"""

from kompakt_core.placement.facts import Facts, Rank


def preserve(facts: Facts, free: int, mask: int, sensitive: bool) -> Rank:
    """Sensitive: highest value, then the most NVLink left behind. Insensitive: the other way round."""
    value, left = -facts.value(mask), -facts.fabric(free & ~mask)
    first = (value, left) if sensitive else (left, value)
    return (*first, *facts.ties(free, mask))
