"""First: the lowest free indices, as a scheduler without topology would number them. A baseline to compare with."""

from kompakt_core.patterns.sets import Masks
from kompakt_core.placement.facts import GpuSetFacts, Keys
from kompakt_core.placement.grouped import GroupFacts


def first(facts: GpuSetFacts | GroupFacts, free: int, masks: Masks, sensitive: bool) -> Keys:
    """Lowest GPU indices."""
    return (facts.by_index(free, masks),)
