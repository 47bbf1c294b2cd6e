"""First: the lowest free indices, as a scheduler without topology would number them. A baseline to compare with."""

from kompakt_core.ids import indices_of
from kompakt_core.placement.facts import Facts, Rank


def first(facts: Facts, free: int, mask: int, sensitive: bool) -> Rank:
    """Lowest GPU indices."""
    return indices_of(mask)
