"""Best: the highest value."""

from kompakt_core.patterns.sets import Masks
from kompakt_core.placement.facts import GpuSetFacts, Keys
from kompakt_core.placement.grouped import GroupFacts


def best(facts: GpuSetFacts | GroupFacts, free: int, masks: Masks, sensitive: bool) -> Keys:
    """Highest value; of equals the set that leaves the most NVLink among the GPUs still free."""
    value, second = facts.values(masks)
    return (-value, -second, -facts.left(free, masks), *facts.ties(free, masks))
