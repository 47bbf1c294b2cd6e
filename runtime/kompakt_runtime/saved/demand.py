"""What the readers of a saved storage ask for, as far as they are known."""

import math
from typing import Any

from kompakt_runtime.codec.features import BoundsWanted


class Demand:
    """Gathered while the forward pass runs, from all operations that save the storage."""

    __slots__ = (
        "asked", "asked_by", "askers", "ceiling", "covered", "fixed", "largest", "own", "readers", "reason", "scales", "signs",
        "unresolved", "watching", "wished",
    )  # fmt: skip

    def __init__(self) -> None:
        self.unresolved = 0  # handles of which nobody knows yet what reads them: the storage stays for so long
        self.readers = 0  # handles whose operation reads the values as they are
        self.signs = 0  # handles whose operation reads only which elements are zero
        self.covered = 0  # bytes of the handles that an error-bounded copy serves
        self.fixed = False  # packing failed or was no gain
        self.reason = ""  # why it stays as it is, the first that there was
        self.ceiling = math.inf  # the tightest bound that any operation asked for
        self.own = math.inf  # the bound that it would be packed with if nothing else were computed from it
        self.asked: list[BoundsWanted] = []
        self.wished: list[BoundsWanted] = []  # by channel, for the sake of what is computed from it
        self.asked_by: Any = None  # the layer or operation whose bound is the ceiling
        self.askers: list[tuple[Any, str]] = []  # who asked for a bound, and in which slot
        self.scales = False  # its magnitude tells how far errors of something else reach in a product
        self.largest: float | None = None  # that magnitude
        # Handles that an error-bounded copy serves in a measured step, and who measures.
        self.watching: list[tuple[Any, Any]] = []

    @property
    def whole(self) -> bool:
        """Somebody needs every bit, or may: the storage itself or an exact copy of it must stay."""
        return self.fixed or self.readers > 0 or self.unresolved > 0

    def ask(self, asked: BoundsWanted, by: Any, slot: str, nbytes: int) -> None:
        """An operation that reads so many bytes of it in this slot bears such errors."""
        self.covered += nbytes
        self.asked.append(asked)
        self.askers.append((by, slot))
        bound = asked.bound
        if self.asked_by is None or bound < self.ceiling:
            self.ceiling, self.asked_by = bound, by

    def values(self, reason: str) -> None:
        """Somebody reads every bit: the storage stays as it is, or what gives every bit of it back."""
        self.readers += 1
        self.reason = self.reason or reason

    def in_vain(self, reason: str) -> None:
        """What could be packed stays as it is."""
        self.fixed = True
        self.reason = self.reason or reason
