"""What to do with one saved tensor: a pure table over how the backward pass uses it, what it is, and what was asked for."""

from dataclasses import dataclass
from enum import Enum
from typing import Final

from kompakt_runtime.config import Mode


class Use(Enum):
    """How the operation that saves a tensor uses it in the backward pass, as far as it matters for keeping it."""

    WEIGHT_GRADIENT = "linear operand: only gradients of parameters read it, linearly"
    SIGN = "only which elements are greater than zero is read"
    NONLINEAR = "read for gradients that go on, and errors up to a bound were asked for"
    SHAPE = "only its shape is read"
    INDICES = "where the maxima were in the windows of max-pooling"
    VALUES = "anything else, and what nobody knows yet: the values must be exact"


@dataclass(frozen=True)
class TensorFacts:
    """nbytes: of the whole storage; boolean: of type bool; constant: no operation made it that autograd knows, as with masks of
    dropout on CPUs, which hold zero and one other number; replayable: such a mask may be drawn again.
    """

    nbytes: int
    lossy_type: bool
    boolean: bool = False
    constant: bool = False
    replayable: bool = False


@dataclass(frozen=True)
class Lossy:
    """Compress so that no element moves by more than `bound`."""

    bound: float


class Exact(Enum):
    """Store what is read, bit for bit, in less room."""

    NOTHING = "the shape is all that is read"
    BITS = "one bit an element"
    TRY_BITS = "one bit an element if there are only two values, else as it is"
    REPLAY = "nothing but the generator's state, if that gives the same bits; else as TRY_BITS"
    CELLS = "places inside windows, once the window is known"


@dataclass(frozen=True)
class KeepPlain:
    """Store as it is, and say why."""

    reason: str


# A sign-exact copy serves SIGN too, so such a tensor waits for another use of the same storage.
WAITS: Final = KeepPlain("OnlySignNeeded")
# A batch that the training loop's own variable keeps alive: a packed copy beside it would only cost.
HELD: Final = KeepPlain("HeldElsewhere")


STRICTNESS: Final[tuple[Mode, ...]] = ("None", "Lossless", "ErrorBounded")


def strictest(*modes: Mode) -> Mode:
    """Where a parameter belongs to another module than the one that runs, what was asked for either holds."""
    return min(modes, key=STRICTNESS.index)


def decide(
    use: Use, facts: TensorFacts, mode: Mode, minimum: int, bound: float | None, held: bool = False
) -> Lossy | Exact | KeepPlain:
    """`mode` is the module's, `minimum` the smallest storage worth the work in bytes, `bound` None where the layer has none;
    `held`: somebody else still had this layer's input when it was read the last time.
    """
    if mode == "None":
        return KeepPlain("ModeNone")
    if facts.nbytes < minimum:
        return KeepPlain("Small")
    if use is Use.SHAPE:
        return Exact.NOTHING
    if use is Use.INDICES:
        return Exact.CELLS
    if facts.boolean:
        return Exact.BITS
    if not facts.lossy_type:
        return KeepPlain("OtherType")
    if use is Use.SIGN:
        return WAITS
    if use is Use.VALUES:
        if not facts.constant:
            return KeepPlain("ValuesNeeded")
        return Exact.REPLAY if facts.replayable else Exact.TRY_BITS
    return _lossy(mode, bound, held)


def _lossy(mode: Mode, bound: float | None, held: bool) -> Lossy | KeepPlain:
    if mode == "Lossless":
        return KeepPlain("ModeLossless")
    if bound is None:
        return KeepPlain("NoBound")
    return HELD if held else Lossy(bound)
