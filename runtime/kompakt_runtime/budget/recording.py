"""One optimizer step in which memory is read, and the codec timed, at each tensor that is packed and read again."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Protocol
from weakref import WeakKeyDictionary

from kompakt_runtime.budget.plan import KeptTensor, RecordedStep
from kompakt_runtime.codec.select import PACKING, UNPACKING, working_bytes
from kompakt_runtime.cost.overhead import Clock, Moment

MOST_READINGS: Final = 10_000  # beyond that a plan would take too much memory and time itself


class KeptCopy(Protocol):
    """What is kept of a saved tensor: an entry, or a value of compiled code. probe: a tensor of its device and type."""

    @property
    def nbytes(self) -> int: ...
    @property
    def held_bytes(self) -> int: ...
    @property
    def probe(self) -> Any: ...


@dataclass(eq=False)
class RecordedTensor:
    """layer: of whose bound it is packed, as far as is known; saved, read: places among the readings; read: the last, None before
    any; spans: of what packs and unpacks it.
    """

    layer: str
    nbytes: int
    kept: int
    saved: int
    read: int | None = None
    spans: list[tuple[Moment, Moment]] = field(default_factory=list)


class Recording:
    """Begins before a step; `step` may be asked for after it, as often as it takes the device to come so far."""

    def __init__(self, clock: Clock, device: Any, memory: Callable[[], int]) -> None:
        """memory: bytes of the device in use now. Tensors of other devices are left out."""
        self._clock, self._device, self._memory = clock, device, memory
        self._lock = threading.Lock()  # forward and backward passes may run on several threads
        self._readings: list[int] = []
        self._passing = 0  # bytes that were there between two readings: the codec's, and of the copy that is read
        self._unseen = 0
        self.failed = False  # the step tells nothing, and training goes on
        self._rows: list[RecordedTensor] = []
        self._by_kept: WeakKeyDictionary[KeptCopy, RecordedTensor] = WeakKeyDictionary()

    @property
    def anything(self) -> bool:
        """A step without a packed tensor tells nothing."""
        return bool(self._rows)

    @property
    def highest(self) -> int:
        """The highest reading."""
        return max(self._readings, default=0)

    @contextlib.contextmanager
    def packing(self, kept: KeptCopy, layer: str) -> Iterator[None]:
        """Around what packs it; once more where another operation saves it too, whose bound then counts."""
        start = self._clock.now()
        yield
        if kept.probe.device != self._device:
            return
        with self._lock:
            self._look(working_bytes(kept.probe, kept.nbytes, PACKING))
            row = self._by_kept.get(kept)
            if row is None:
                row = self._by_kept[kept] = RecordedTensor(layer, kept.nbytes, kept.held_bytes, len(self._readings) - 1)
                self._rows.append(row)
            row.layer = layer
            row.spans.append((start, self._clock.now()))

    @contextlib.contextmanager
    def reading(self, kept: KeptCopy | None) -> Iterator[None]:
        """Around what a backward pass reads; None: something that nobody packs."""
        row = None if kept is None else self._by_kept.get(kept)
        with self._lock:
            self._look(0 if row is None or kept is None else kept.nbytes + working_bytes(kept.probe, kept.nbytes, UNPACKING))
            if row is not None and kept is not None:
                row.kept = kept.held_bytes if row.read is None else row.kept
                row.read = len(self._readings) - 1
        start = self._clock.now()
        yield
        if row is not None:
            row.spans.append((start, self._clock.now()))

    def look(self) -> None:
        """One more reading: of a moment at which nothing is packed or read."""
        with self._lock:
            self._look(0)

    def _look(self, passing: int) -> None:
        """passing: bytes that are there before the next reading, or were after the last, and are in neither."""
        self._passing = max(self._passing, passing)
        try:
            self.failed |= len(self._readings) >= MOST_READINGS
            self._readings.append(self._memory())
        except Exception:
            self.failed = True
            self._readings.append(0)

    def ended(self, peak: int | None, before: int) -> int:
        """The step is over. peak: the most bytes, if this step's are known; before: by how much an earlier step's peak was above
        its readings. Returns how much this one's is taken to be.
        """
        self._unseen = max(self._passing, before if peak is None else peak - self.highest)
        return self._unseen

    def step(self) -> RecordedStep | None:
        """None while the device has not come so far. Raises RuntimeError where its marks cannot be read."""
        seconds: dict[str, float] = {}
        for row in self._rows:
            spans = [self._clock.seconds(*span) for span in row.spans]
            if None in spans:
                return None
            seconds[row.layer] = seconds.get(row.layer, 0.0) + sum(filter(None, spans))
        last = len(self._readings) - 1
        tensors = [
            KeptTensor(row.layer, row.nbytes, row.kept, row.saved, last if row.read is None else row.read) for row in self._rows
        ]
        return RecordedStep(self._readings, self._unseen, tensors, seconds)
