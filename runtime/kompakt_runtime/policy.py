"""What to do with one saved tensor: a pure table over how the backward pass uses it, what it is, and what was asked for."""

from dataclasses import dataclass
from enum import Enum
from typing import Final

from kompakt_runtime.config import Mode


class Use(Enum):
    """How the operation that saves a tensor uses it in the backward pass."""

    WEIGHT_GRADIENT = "input of a linear operation: only its weight gradient reads it, linearly"
    SIGN = "output of a ReLU: only which elements are zero is read"
    VALUES = "anything else: the values must be exact"


@dataclass(frozen=True)
class Facts:
    """nbytes: of the whole storage; whole: the tensor fills at least half of it."""

    nbytes: int
    lossy_type: bool
    whole: bool


@dataclass(frozen=True)
class Lossy:
    """Compress so that no element moves by more than `bound`."""

    bound: float


@dataclass(frozen=True)
class Keep:
    """Store as it is, and say why."""

    reason: str


# A sign-exact copy serves SIGN too, so such a tensor waits for another use of the same storage.
WAITS: Final = Keep("OnlySignNeeded")
# A batch that the training loop's own variable keeps alive: a packed copy beside it would only cost.
HELD: Final = Keep("HeldElsewhere")


def decide(use: Use, facts: Facts, mode: Mode, minimum: int, bound: float | None, held: bool = False) -> Lossy | Keep:
    """`mode` is the module's, `minimum` the smallest storage worth the work in bytes, `bound` None during warm-up;
    `held`: somebody else still had this layer's input when it was read the last time.
    """
    if mode != "ErrorBounded":
        return Keep(f"Mode{mode}")
    if not facts.lossy_type:
        return Keep("OtherType")
    if facts.nbytes < minimum:
        return Keep("Small")
    if use is Use.SIGN:
        return WAITS
    if use is Use.VALUES:
        return Keep("ValuesNeeded")
    if not facts.whole:
        return Keep("PartOfStorage")
    if bound is None:
        return Keep("WarmUp")
    return HELD if held else Lossy(bound)
