"""One value that compiled code handed over, between its forward and its backward pass."""

from collections.abc import Sequence
from functools import partial
from typing import Any, Protocol

from kompakt_runtime.bounds.site import MeasuredCall
from kompakt_runtime.codec import Packed, decode
from kompakt_runtime.compiled.measured import ReadOnce
from kompakt_runtime.compiled.weight_gradients import ReadAs

Tensor = Any


class ValueReader(Protocol):
    """Who keeps the values, as far as they are read."""

    def read(self, kept: Any, see: Any) -> Tensor: ...
    def see(self, kept: Any, deltas: Sequence[Tensor], first: int, found: Tensor, /) -> None: ...
    def see_again(self, kept: Any, inputs: Sequence[Tensor], tickets: Sequence[int], program: str, found: Tensor, /) -> None: ...


class KeptValue:
    """One value between its forward and its backward pass. As an entry, as far as it is counted and compared."""

    same = False  # an entry's word for a copy of every bit

    def __init__(self, values: ValueReader, x: Tensor, reads: tuple[ReadAs, ...], beside: int | None) -> None:
        self._values, self.reads, self.beside = values, reads, beside
        self.nbytes, self.probe = int(x.numel() * x.element_size()), x.new_empty(0)
        self.layer, self.reason, self.counted = "", "", False
        self.packed: Packed | None = None
        self.plain: Tensor = None
        self.original: Tensor = None
        self.bound = 0.0
        self.share: Any = None
        self.watching: list[tuple[int, MeasuredCall]] = []  # by which reader's output the gradient is
        self.once: ReadOnce | None = None  # of what is read for gradients that go on, in a measured step

    @property
    def bounded(self) -> bool:
        return self.packed is not None

    @property
    def copy(self) -> Packed | None:
        return self.packed

    @property
    def held_bytes(self) -> int:
        return self.nbytes if self.packed is None else int(self.packed.nbytes)

    def stay(self, x: Tensor, reason: str) -> None:
        """A copy of it all: the graph takes the value's own memory for other things."""
        self.plain, self.packed, self.reason = x.detach().clone(), None, reason

    def read(self, deltas: Sequence[Tensor], first: int) -> Tensor:
        return self._values.read(self, partial(self._values.see, self, deltas, first))

    def read_again(self, inputs: Sequence[Tensor], tickets: Sequence[int], program: str) -> Tensor:
        return self._values.read(self, partial(self._values.see_again, self, inputs, tickets, program))

    def look(self) -> Tensor:
        return self.plain if self.packed is None else decode(self.packed)
