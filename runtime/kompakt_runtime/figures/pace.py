"""How long an optimizer step takes and what gradients it has: measured in every process that trains, a few microseconds a step.

Placement wants to know how much a training talks for how much it computes. No torch here but what the optimizer brings along.
"""

import contextlib
import statistics
import sys
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final

STEPS: Final = 101  # the median of so many step times, so that pauses (a checkpoint, a look at test data) do not count
WARM_UP: Final = 3  # the first steps allocate, compile and choose algorithms
LEAST: Final = 10  # step times before anything is said
# Field of the report -> name and help on the page of metrics.
METRICS: Final = {
    "stepSeconds": ("kompakt_step_seconds", "Median time between optimizer steps."),
    "gradientBytes": ("kompakt_gradient_bytes", "Bytes of the gradients that one step of a rank uses."),
    "ranks": ("kompakt_ranks", "Processes that train together."),
}


class StepCounter:
    """Counts the steps of the optimizer that stepped first; gradients of all optimizers between two of its steps."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self.begin()

    def begin(self) -> None:
        """Nothing was measured yet: at first, and in a process that was forked."""
        self._first: int | None = None
        self._moment: float | None = None
        self._times: deque[float] = deque(maxlen=STEPS)
        self._bytes = 0
        self.steps = 0
        self.gradient_bytes = 0

    def stepped(self, optimizer: Any) -> bool:
        """An optimizer has stepped; whether that was a step that counts."""
        if self._first is None:
            self._first = id(optimizer)
        mine = id(optimizer) == self._first
        if mine:
            self._count()
        if self.steps == WARM_UP:
            self._bytes += _gradient_bytes(optimizer)
        return mine

    def _count(self) -> None:
        now = self._clock()
        if self._moment is not None and self.steps > WARM_UP:
            self._times.append(now - self._moment)
        if self.steps == WARM_UP:
            self.gradient_bytes = self._bytes
        self._moment = now
        self.steps += 1

    def said(self) -> dict[str, Any]:
        """Fields as in METRICS; empty until there is enough to tell."""
        times = list(self._times)
        if len(times) < LEAST:
            return {}
        return {"stepSeconds": statistics.median(times), "gradientBytes": self.gradient_bytes, "ranks": ranks()}

    def watch(self) -> None:
        """From now on all optimizers of this process count, if torch (which is there already) has such hooks."""
        with contextlib.suppress(ImportError):
            from torch.optim.optimizer import register_optimizer_step_post_hook

            register_optimizer_step_post_hook(self._hook)

    def _hook(self, optimizer: Any, args: object, kwargs: object) -> None:
        with contextlib.suppress(Exception):  # an optimizer that is none: better no figure than no training
            self.stepped(optimizer)


def ranks() -> int:
    """Processes of the default process group; 1 without one."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return 1
    return int(distributed.get_world_size())


def _gradient_bytes(optimizer: Any) -> int:
    """A gradient that is sharded over ranks counts whole, as its parts are exchanged all the same."""
    gradients = (p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None)
    return sum(g.numel() * g.element_size() for g in gradients)
