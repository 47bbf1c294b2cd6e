"""Best: the highest value."""

from kompakt_core.placement.facts import Facts, Rank


def best(facts: Facts, free: int, mask: int, sensitive: bool) -> Rank:
    """Highest value; of equals the set that leaves the most NVLink among the GPUs still free."""
    return (-facts.value(mask), -facts.fabric(free & ~mask), *facts.ties(free, mask))
