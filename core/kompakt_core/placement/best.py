"""Best: the highest value."""

from kompakt_core.patterns.sets import Masks
from kompakt_core.placement.facts import Facts, Keys


def best(facts: Facts, free: int, masks: Masks, sensitive: bool) -> Keys:
    """Highest value; of equals the set that leaves the most NVLink among the GPUs still free."""
    value, second = facts.values(masks)
    return (-value, -second, -facts.fabrics(free & ~masks), *facts.ties(free, masks))
