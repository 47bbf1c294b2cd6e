"""What compression costs in time, as a share of a step's time without it.

Where memory allows it, some early steps are trained plainly, in turn with compressed ones (on, off, off, on, so that a slow
drift falls on both alike). Which steps these are is told by their number, the same on every rank; no rank asks another.
Where memory does not allow it, or the batch was raised because of compression, the codec's own time is summed instead.
"""

import contextlib
import os
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import torch

from kompakt_runtime.compat.tensors import device_of
from kompakt_runtime.cost.headroom import limit, peak
from kompakt_runtime.figures.counted import Figures

FIRST: Final = 12  # steps before: bounds settle, the optimizer's state is made, allocators find their size
PLAIN: Final = frozenset({1, 2})  # of each four steps from FIRST on
TURNS: Final = 32  # steps in turn: half of them plain
TIMED: Final = 8  # steps after these in which the codec is timed
LEAST: Final = 5  # times of a kind before anything is said
MEASURED_EVERY: Final = 32  # steps, as in bounds.observed: one of these compares copies and takes longer
# Of the memory that is there, so much stays free when a step is trained plainly: allocators round up, and copies lie apart.
SPARE: Final = 0.1

NOTHING: Final = contextlib.nullcontext()
Moment = Any


class Clock:
    """Moments on the host, or on a GPU's stream where nobody has to wait for them."""

    def __init__(self, gpu: bool) -> None:
        self._gpu = gpu

    def now(self) -> Moment:
        if not self._gpu:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def seconds(self, start: Moment, end: Moment) -> float | None:
        """Between two moments; None while the GPU has not reached the later one."""
        if not self._gpu:
            return float(end - start)
        return float(start.elapsed_time(end)) / 1e3 if end.query() else None


class Overhead:
    """Counts steps of the optimizer that stepped first; says for each whether it is `off` (plain) or `timing` (the codec)."""

    def __init__(
        self, figures: Figures, plain: bool = False, timed: bool = False, measured: Callable[[int], bool] = lambda steps: False
    ) -> None:
        """plain: steps may be trained plainly; timed: the codec may be timed. With neither nothing is ever done. measured: is the
        step after so many one to measure, as far as is known beforehand?
        """
        self._figures, self._plain, self._timed, self._measured = figures, plain, timed, measured
        self.off = self.timing = False
        self.disturbed = False  # plain steps have run: peaks of memory tell of them from now on
        self._clock: Clock | None = None
        self._device: Any = None
        self._first: int | None = None
        self._steps = 0
        self._kind = ""
        self._since: Moment = None
        self._spans: dict[str, list[tuple[Moment, Moment]]] = {"on": [], "off": [], "measured": [], "timed": [], "codec": []}
        self._saved = 0
        self._gap = 0  # the most bytes that one step's compression saved

    def entered(self, module: Any) -> None:
        """A forward pass begins."""
        if self._clock is None and (self._plain or self._timed):
            self._device = device_of(module)
            self._clock = Clock(self._device.type == "cuda")

    def stepped(self, optimizer: Any, observing: bool) -> None:
        """An optimizer step is over. observing: the next one is measured."""
        if self._first is None:
            self._first = id(optimizer)
        if self._clock is None or id(optimizer) != self._first or self._steps > FIRST + TURNS + TIMED:
            return
        self._steps += 1
        self._note()
        if self._steps == FIRST:
            self._plain = self._plain and self._gap <= room(self._device)
        self._next(self._steps - FIRST, observing)

    def _note(self) -> None:
        """The step that ended."""
        now = self._clock.now() if self._clock is not None and self._steps >= FIRST else None
        if self._kind and self._since is not None:
            self._spans[self._kind].append((self._since, now))
        self._since = now
        saved = self._figures.plain_bytes - self._figures.saved_bytes
        self._gap, self._saved = max(self._gap, saved - self._saved), saved

    def _next(self, place: int, observing: bool) -> None:
        """`place`: of the step that begins, from FIRST on."""
        kind = self._kind_of(place, observing)
        self.off, self.timing = kind == "off", kind == "timed"
        self.disturbed |= self.off
        self._kind = kind if self._plain or self._timed else ""

    def _kind_of(self, place: int, observing: bool) -> str:
        turn, timed = 0 <= place < TURNS, TURNS <= place < TURNS + TIMED
        if observing:
            return "measured"
        if self._plain and turn and place % 4 in PLAIN:
            return "off"
        return "timed" if self._timed and timed else "on" if turn else ""

    def rest(self) -> None:
        """The step that begins runs plainly for another reason, so its time tells nothing."""
        self.off = self.timing = False
        self.disturbed, self._kind = True, ""

    def codec(self) -> contextlib.AbstractContextManager[None]:
        """Around what the codec does; its time counts in the steps for that."""
        return self._span() if self.timing else NOTHING

    @contextlib.contextmanager
    def _span(self) -> Iterator[None]:
        clock = self._clock
        start = clock.now() if clock is not None else None
        yield
        if clock is not None:
            self._spans["codec"].append((start, clock.now()))

    def steps(self) -> tuple[int, int]:
        """How many steps it takes until `said` says anything, and how many there were; zeros where nothing is ever said."""
        if not (self._plain or self._timed):
            return 0, 0
        enough = ("on", "off") if self._plain else ("timed",)
        kinds: list[str] = []
        while min(map(kinds.count, enough)) < LEAST and len(kinds) < TURNS + TIMED:
            kinds.append(self._kind_of(len(kinds), self._measured(FIRST + len(kinds))))
        return FIRST + len(kinds), self._steps

    def said(self) -> dict[str, str]:
        """percent: of steps in turn; codecPercent: of the codec's summed time in what the steps took besides. Decimal text."""
        times = {kind: self._seconds(spans) for kind, spans in self._spans.items()}
        found = {}
        if min(len(times["on"]), len(times["off"])) >= LEAST:
            found["percent"] = _with_measured(times["on"], times["measured"]) / statistics.median(times["off"]) - 1
        codec, steps = sum(times["codec"]), sum(times["timed"])
        if len(times["timed"]) >= LEAST and 0 < codec < steps:
            found["codecPercent"] = codec / (steps - codec)
        return {name: f"{100 * share:.1f}" for name, share in found.items()}

    def _seconds(self, spans: list[tuple[Moment, Moment]]) -> list[float]:
        clock = self._clock
        try:
            found = [clock.seconds(*span) for span in spans] if clock is not None else []
        except RuntimeError:  # a GPU that has failed; the training has other worries
            return []
        return [seconds for seconds in found if seconds is not None]


def room(device: Any) -> int:
    """Bytes that are free even at the peak, less what is left alone."""
    there = limit(device, os.environ)
    return int(there - SPARE * there) - peak(device)


def _with_measured(ordinary: list[float], measured: list[float]) -> float:
    """A compressed step's mean time, with its share of those that are measured."""
    middle = statistics.median(ordinary)
    return middle + (statistics.median(measured) - middle) / MEASURED_EVERY if measured else middle
