"""Holds a training's memory to a budget: records a step, plans which layers are packed in the steps after, and watches the peak.

Until there is a plan all is packed, so a batch that only fits compressed fits from the first step on. A step is recorded again
after each that measures bounds, since these decide what is won; layers that the plan leaves are packed in both, and measured.
"""

import contextlib
import os
from collections.abc import Callable
from typing import Any, Final
from weakref import ref

import torch

from kompakt_runtime.amounts import Amount
from kompakt_runtime.budget.figures import NEXT, BudgetFigures
from kompakt_runtime.budget.plan import PlanChoices, RecordedStep
from kompakt_runtime.budget.recording import KeptCopy, Recording
from kompakt_runtime.cost.headroom import held, limit, peak
from kompakt_runtime.cost.overhead import NOTHING, Clock

WITHIN_BUDGET: Final = "WithinBudget"  # why a layer stays as it is
FIRST: Final = 3  # optimizer steps before one is recorded: bounds settle, the optimizer's state is made


class Memory:
    """What a budget is held against: bytes that tensors have on a GPU, resident memory of the process on a CPU."""

    def __init__(self, device: Any) -> None:
        self._device = device

    def there(self) -> int:
        if self._device.type == "cuda":
            return int(torch.cuda.get_device_properties(self._device).total_memory)
        return limit(self._device, os.environ)

    def now(self) -> int:
        return held(self._device)

    def peak(self) -> int:
        """The most so far."""
        return int(torch.cuda.max_memory_allocated(self._device)) if self._device.type == "cuda" else peak(self._device)


class BudgetControl:
    """Of one process. Without a budget nothing is ever recorded or left."""

    def __init__(self, asked: Amount | None, memory: Callable[[Any], Any] = Memory) -> None:
        """memory: what reads a device's."""
        self._asked, self._memory_of = asked, memory
        self._memory: Memory | None = None
        self._clock: Clock | None = None
        self._budget = 0
        self._optimizer: ref[Any] | None = None
        self._steps = 0
        self._due = True  # none was recorded since bounds were measured
        self._recording: Recording | None = None  # the step that runs
        self._over: Recording | None = None  # one whose marks the device may not have reached
        self.step: RecordedStep | None = None  # the one that was recorded last
        self._plain: frozenset[str] = frozenset()
        self._margin = 0  # by how much a step with a plan took more than the plan said
        self._highest = 0  # the most before the step that runs
        self._state = 0
        self._figures: BudgetFigures | None = None

    def entered(self, device: Any) -> None:
        """A forward pass begins, or goes on, on this device."""
        if self._asked is not None and self._memory is None:
            self._memory, self._clock = self._memory_of(device), Clock(device.type == "cuda")
            self._budget = self._asked.of_all(self._memory.there())

    def leaves(self, by: Any) -> bool:
        """Whether what this layer or operation reads stays as it is. While it is measured, it is packed."""
        return by.name in self._plain and self._recording is None and not by.observing

    def packing(self, kept: KeptCopy, layer: str) -> contextlib.AbstractContextManager[None]:
        """Around what packs it."""
        return NOTHING if self._recording is None else self._recording.packing(kept, layer)

    def reading(self, kept: KeptCopy | None) -> contextlib.AbstractContextManager[None]:
        """Around what a backward pass reads."""
        return NOTHING if self._recording is None or kept is None else self._recording.reading(kept)

    def stepped(self, optimizer: Any, observing: bool) -> None:
        """An optimizer step is over. observing: the next one measures bounds."""
        if self._optimizer is None or self._optimizer() is None:
            self._optimizer = ref(optimizer)  # of several the first tells where a step ends
        if self._optimizer() is not optimizer or self._memory is None or self._clock is None:
            return
        self._steps += 1
        self._recorded(self._memory.peak())
        if self._over is not None and (step := self._over.step()) is not None:
            self._over, self.step, self._state = None, step, state_bytes(optimizer)
            self._plan()
        self._highest = max(self._highest, self._memory.peak())
        self._due = self._due or observing
        if self._due and self._steps >= FIRST and not observing and self._over is None and self._recording is None:
            self._due, self._recording = False, Recording(self._clock, self._memory.now)

    def _recorded(self, peak: int) -> None:
        """The step that ended was recorded (one without our forward passes tells nothing, so the next one is), or ran by the
        plan: what it took more than the budget makes plans tighter.
        """
        if self._recording is not None and self._recording.anything:
            self._recording.ended(peak, grew=peak > self._highest)
            self._over, self._recording = None if self._recording.failed else self._recording, None
        elif self.step is not None and peak > max(self._highest, self._budget):
            self._margin += peak - self._budget
            self._plan()

    def _plan(self) -> None:
        assert self._asked is not None
        assert self.step is not None
        choices = PlanChoices(self.step)
        plan, more = (choices.fastest(self._budget - self._margin + beside) for beside in (0, NEXT))
        everything = choices.fastest(0)
        self._plain = plan.plain
        self._figures = BudgetFigures(
            self._asked.text, self._budget, plan, everything.peak, choices.most, everything.seconds, more.seconds, self._state
        )

    def said(self) -> dict[str, Any]:
        """{} without a budget, and while nothing is planned."""
        return {} if self._figures is None else self._figures.said()


def state_bytes(optimizer: Any) -> int:
    """Weights, their gradients, and what the optimizer keeps of them."""
    weights = [weight for group in optimizer.param_groups for weight in group["params"]]
    kept = [value for state in optimizer.state.values() for value in state.values() if isinstance(value, torch.Tensor)]
    return sum(
        int(t.numel() * t.element_size()) for t in [*weights, *(weight.grad for weight in weights), *kept] if t is not None
    )
