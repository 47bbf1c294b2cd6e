"""The patterns a job can ask for, as written in objects."""

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
    CUSTOM = "Custom"


SUPPORTED = frozenset({Pattern.RING, Pattern.CLIQUE, Pattern.NONE})  # the others are refused with a sentence for now
