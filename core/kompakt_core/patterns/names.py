"""The patterns a job can ask for, and the two measures of what a set gives them, as written in objects."""

from enum import StrEnum


class Pattern(StrEnum):
    """The shape of the communication among the GPUs of a set."""

    RING = "Ring"
    CHAIN = "Chain"
    TREE = "Tree"
    STAR = "Star"
    CLIQUE = "Clique"
    ALL_TO_ALL = "AllToAll"
    NONE = "None"
    CUSTOM = "Custom"  # custom edges


class Measure(StrEnum):
    """What a value counts: the slowest link that the pattern uses, or all of them added up."""

    BOTTLENECK = "Bottleneck"
    SUM = "Sum"


NAMED = tuple(pattern for pattern in Pattern if pattern is not Pattern.CUSTOM)
