"""The ways in which backward functions read what was saved, and one row of the table that says which node reads how."""

from dataclasses import dataclass
from enum import Enum
from typing import Final


class Read(Enum):
    """What a backward function reads in one slot. What follows from it, how a tensor may be kept, is decided elsewhere."""

    LINEAR = "linear operand: a factor of a parameter's gradient, and of nothing else"
    PRODUCT = "product operand: a factor of a gradient that goes on"
    ELEMENT = "argument of a function of each element: an error stays at its element"
    JOINT = "argument of a function of many elements together, as queries and keys of attention"
    NORM = "input of a norm, read less its mean and over its deviation"
    PROBABILITIES = "probabilities, or their logarithms"
    SIGN = "only which elements are greater than zero"
    RANGE = "only between which constants of the operation each element lies"
    MASK = "booleans"
    INDEX = "whole numbers: places, classes, lengths"
    SHAPE = "nothing but shape, type and memory format"
    EXACT = "every bit: statistics, random state, what is compared for equality"


# Packed with an error bound, these do no more harm than that bound allows.
TOLERANT: Final = frozenset({Read.LINEAR, Read.PRODUCT, Read.ELEMENT, Read.JOINT, Read.NORM, Read.PROBABILITIES})


@dataclass(frozen=True)
class Row:
    """gradients: which of the node's gradients read the slot, numbered as `next_functions`. idle: what is read where none of them
    is asked for. unverified: no test on a CPU can make the node, so the process tries the row (see `trials.py`)
    before anything relies on it.
    """

    read: Read
    gradients: tuple[int, ...] = (0,)
    idle: Read = Read.EXACT
    unverified: bool = False


Rows = dict[str, dict[str, Row]]


def product(*gradients: int, idle: Read = Read.EXACT) -> Row:
    """A factor of these gradients; a linear operand where all of them are gradients of parameters."""
    return Row(Read.PRODUCT, gradients, idle)


def exact(*slots: str) -> dict[str, Row]:
    return {slot: Row(Read.EXACT, ()) for slot in slots}


ELEMENT: Final = Row(Read.ELEMENT)
SHAPE: Final = Row(Read.SHAPE, ())
INDEX: Final = Row(Read.INDEX)
MASK: Final = Row(Read.MASK)
SIGN: Final = Row(Read.SIGN)
RANGE: Final = Row(Read.RANGE)
PROBABILITIES: Final = Row(Read.PROBABILITIES)
