"""One optimizer step in which memory is read, and the codec timed, at each tensor that is packed and read again."""

import contextlib
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol
from weakref import WeakKeyDictionary

from kompakt_runtime.budget.plan import KeptTensor, RecordedStep
from kompakt_runtime.codec.select import PACKING, UNPACKING, working_bytes
from kompakt_runtime.cost.overhead import Clock, Moment


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
    """saved, read: places among the readings; read: the last, None before any."""

    layer: str
    nbytes: int
    kept: int
    saved: int
    read: int | None = None


class Recording:
    """Begins before a step; `step` may be asked for after it, as often as it takes the device to come so far."""

    def __init__(self, clock: Clock, memory: Callable[[], int]) -> None:
        """memory: bytes of the device in use now."""
        self._clock, self._memory = clock, memory
        self._lock = threading.Lock()  # forward and backward passes may run on several threads
        self._readings: list[int] = []
        self._passing = 0  # bytes that were there between two readings: the codec's, and of the copy that is read
        self._unseen = 0
        self.failed = False  # to read memory: the step tells nothing, and training goes on
        self._rows: list[RecordedTensor] = []
        self._by_kept: WeakKeyDictionary[KeptCopy, RecordedTensor] = WeakKeyDictionary()
        self._spans: defaultdict[str, list[tuple[Moment, Moment]]] = defaultdict(list)

    @property
    def anything(self) -> bool:
        """A step without a packed tensor tells nothing."""
        return bool(self._rows)

    @contextlib.contextmanager
    def packing(self, kept: KeptCopy, layer: str) -> Iterator[None]:
        """Around what packs it; once more where another operation saves it too."""
        start = self._clock.now()
        yield
        with self._lock:
            self._spans[layer].append((start, self._clock.now()))
            self._look(working_bytes(kept.probe, kept.nbytes, PACKING))
            if kept not in self._by_kept:
                row = RecordedTensor(layer, kept.nbytes, kept.held_bytes, len(self._readings) - 1)
                self._by_kept[kept] = row
                self._rows.append(row)

    @contextlib.contextmanager
    def reading(self, kept: KeptCopy) -> Iterator[None]:
        """Around what a backward pass reads."""
        row = self._by_kept.get(kept)
        if row is None:
            yield
            return
        with self._lock:
            self._look(kept.nbytes + working_bytes(kept.probe, kept.nbytes, UNPACKING))
            if row.read is None:
                row.kept = kept.held_bytes
            row.read = len(self._readings) - 1
        start = self._clock.now()
        yield
        with self._lock:
            self._spans[row.layer].append((start, self._clock.now()))

    def _look(self, passing: int) -> None:
        """passing: bytes that are there before the next reading, or were after the last, and are in neither."""
        self._passing = max(self._passing, passing)
        try:
            self._readings.append(self._memory())
        except Exception:
            self.failed = True
            self._readings.append(0)

    def ended(self, peak: int, grew: bool) -> None:
        """The step is over. peak: the most bytes so far; grew: this step set it. Else an earlier one did, and beside what the
        codec takes there is taken to be no more between two readings than the gradient of the largest tensor.
        """
        above = peak - max(self._readings)
        self._unseen = max(self._passing, above if grew else min(above, self._passing + max(row.nbytes for row in self._rows)))

    def step(self) -> RecordedStep | None:
        """None while the device has not come so far."""
        seconds = {layer: [self._clock.seconds(*span) for span in spans] for layer, spans in self._spans.items()}
        if any(span is None for spans in seconds.values() for span in spans):
            return None
        last = len(self._readings) - 1
        tensors = [
            KeptTensor(row.layer, row.nbytes, row.kept, row.saved, last if row.read is None else row.read) for row in self._rows
        ]
        return RecordedStep(
            self._readings, self._unseen, tensors, {layer: sum(filter(None, spans)) for layer, spans in seconds.items()}
        )
