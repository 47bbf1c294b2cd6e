"""Holds a training's memory to a budget: records a step, plans which layers are packed in the steps after, and watches the peak.

Until there is a plan all is packed, so a batch that only fits compressed fits from the first step on. A step is recorded again
after each that measures bounds, since these decide what is won; layers that the plan leaves are packed in both, and measured.
"""

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final
from weakref import ref

from kompakt_runtime.amounts import Amount
from kompakt_runtime.budget.earlier import EXCEEDED, EarlierPlan
from kompakt_runtime.budget.figures import NEXT, BudgetFigures
from kompakt_runtime.budget.kept import KeptPlan
from kompakt_runtime.budget.memory import Memory, state_bytes
from kompakt_runtime.budget.plan import PlanChoices, RecordedStep
from kompakt_runtime.budget.recording import KeptCopy, Recording
from kompakt_runtime.budget.unseen import UnseenBytes, spare
from kompakt_runtime.cost.overhead import NOTHING, Clock

OTHERS: Final = 32  # steps of other optimizers after which the first one is taken to step no more
FIRST: Final = 3  # optimizer steps before one is recorded: bounds settle, the optimizer's state is made


class BudgetControl:
    """Of one process. Without a budget nothing is ever recorded or left."""

    def __init__(
        self,
        asked: Amount | None,
        memory: Callable[[Any], Any] = Memory,
        saved: Callable[[], int] = lambda: 0,
        settings: str = "",
        earlier: bool = True,
    ) -> None:
        """memory: what reads a device's; saved: bytes that plain autograd would have held at most in the step that runs;
        settings: as EarlierPlan; earlier: whether the plan of an earlier attempt may be used.
        """
        self.earlier = EarlierPlan("" if asked is None else asked.text, settings, earlier)
        self._asked, self._memory_of, self._saved = asked, memory, saved
        self._memory: Memory | None = None
        self._clock: Clock | None = None
        self._device: Any = None
        self._budget = 0
        self._optimizer: ref[Any] | None = None
        self._steps = 0
        self._due = True  # none was recorded since bounds were measured
        self._recording: Recording | None = None  # the step that runs
        self._over: Recording | None = None  # one whose marks the device may not have reached
        self.step: RecordedStep | None = None  # the one that was recorded last
        self._others = 0  # steps of other optimizers since the last of the first one
        self._plain: frozenset[str] = frozenset()
        self._left = False  # the plan left something as it is in this step
        self.ever_left = False  # in any step: until then peaks are those of packing all
        self._measured = False  # a layer was measured in this step
        self._size = 0  # of the step that was recorded last, as `saved` has it
        self._origin = 0  # the most before the first forward pass
        self._before: int | None = None  # the most before this step's first forward pass
        self._highest = 0  # the most that was read so far
        self._fell = False  # the program had the device's peak begin anew: it tells of a part of a step only
        self._unseen = UnseenBytes()
        self._seen: Any = None  # bytes of a step by the plan at each moment, without those
        self._state = 0
        self._figures: BudgetFigures | None = None

    def room(self) -> int | None:
        """Bytes that a step may take and the plan still say so; None where there is no budget, or its device is not known yet."""
        return None if self._memory is None else self._budget - spare(self._budget)

    def given(self, model: Any, args: tuple[Any, ...], named: Mapping[str, Any]) -> None:
        """An outermost forward pass begins, which is given that."""
        if self._asked is not None:
            self.earlier.passes.begins(model, args, named)

    def entered(self, device: Any) -> None:
        """A forward pass begins, or goes on, on this device. Where its memory cannot be read there is no plan."""
        if self._asked is None:
            return
        try:
            self._begin(device, self._asked)
        except Exception:
            self._asked = self._memory = self._recording = None
            self._plain = frozenset()

    def _begin(self, device: Any, asked: Amount) -> None:
        if self._memory is None:
            memory = self._memory_of(device)
            self._budget, self._origin = asked.of_all(memory.there()), memory.peak()
            self._device, self._memory, self._clock = device, memory, Clock(device.type == "cuda")
        if self._before is None:
            self._before = self._peak(self._memory)
        if self.step is None:
            self._go_on_with(self.earlier.in_force(self._budget, device))

    def _peak(self, memory: Memory) -> int:
        found = memory.peak()
        self._fell |= found < self._highest
        self._highest = max(found, self._highest)
        return found

    def _go_on_with(self, plan: KeptPlan | None) -> None:
        """Of an earlier attempt; None: there is none, or none any more."""
        if plan is not None and self._figures is None:
            self._figures, self._plain = replace(plan.figures, earlier=self.earlier.words), plan.figures.plan.plain
            self._unseen.load(plan.unseen, plan.at, plan.moments)
        elif plan is None and self._figures is not None:
            self._figures, self._plain, self._unseen = None, frozenset(), UnseenBytes()

    def leaves(self, by: Any) -> bool:
        """Whether what this layer or operation reads stays as it is. While it is measured, it is packed."""
        stays = by.name in self._plain and self._recording is None and not by.observing
        self._left |= stays
        self.ever_left |= stays
        self._measured |= by.observing
        return stays

    def packing(self, kept: KeptCopy, layer: str) -> contextlib.AbstractContextManager[None]:
        """Around what packs it."""
        return NOTHING if self._recording is None else self._recording.packing(kept, layer)

    def reading(self, kept: KeptCopy | None) -> contextlib.AbstractContextManager[None]:
        """Around what a backward pass reads."""
        return NOTHING if self._recording is None else self._recording.reading(kept)

    def stepping(self) -> None:
        """An optimizer step begins."""
        if self._recording is not None:
            self._recording.look()
        if self._left and self._memory is not None and not self._fell:
            self._look(self._memory)

    def _look(self, memory: Memory) -> None:
        try:
            self._peak(memory)
        except Exception:  # as in `entered`, the next time
            self._fell = True

    def stepped(self, optimizer: Any, observing: bool) -> None:
        """An optimizer step is over. observing: the next one measures bounds. What fails costs the plan, and nothing else."""
        if self._recording is not None and (self._recording.failed or self._measured):
            self._recording = None
        if self._memory is None or self._clock is None or not self._is_first(optimizer):
            return
        try:
            self._step_over(optimizer, self._memory, observing)
        except Exception:
            self._over = self._recording = None
        self._before, self._left, self._measured = None, False, False
        self.earlier.stepped()
        if self._due and self._steps >= FIRST and not observing and self._over is None and self._recording is None:
            self._due, self._recording = False, Recording(self._clock, self._device, self._memory.now)

    def _is_first(self, optimizer: Any) -> bool:
        """Of several the first tells where a step ends, unless it steps no more."""
        self._others += 1
        first = None if self._optimizer is None else self._optimizer()
        if first is None or first is optimizer or self._others > OTHERS:
            self._optimizer, self._others = ref(optimizer), 0
        return self._others == 0

    def _step_over(self, optimizer: Any, memory: Memory, observing: bool) -> None:
        self._steps += 1
        self._due = self._due or observing or self._measured
        peak, before = self._peak(memory), self._before
        if self._recording is not None and self._recording.anything:
            self._end_recording(peak)
        elif self._left and self._figures is not None:
            self._by_plan(peak, self._figures, set_now=before is not None and peak > before)
        if self._over is not None and (step := self._over.step()) is not None:
            self._over, self.step, self._state = None, step, state_bytes(optimizer)
            self._unseen.recorded(step)
            self.earlier.recorded()
            self._plan()

    def _end_recording(self, peak: int) -> None:
        """Before there is a plan every step packs all, so the most that any took tells of this one; later only if it set it.
        What was taken before the first forward pass, to load a model, tells nothing. So with a plan of an earlier attempt.
        """
        assert self._recording is not None
        self._recording.look()
        known = peak > (self._origin if self._figures is None else self._before or 0)
        self._unseen.ended(self._recording, peak if known else None)
        self._size = self._saved()
        self.earlier.ended()
        self._over, self._recording = None if self._recording.failed else self._recording, None

    def _by_plan(self, peak: int, figures: BudgetFigures, set_now: bool) -> None:
        """A step by the plan is over. peak: the most bytes so far, which is an upper bound of what this one took, and what it
        took if it set that now.
        """
        said, least = figures.plan.peak, spare(figures.budget)
        if self.step is None:
            return self._by_earlier(exceeded=set_now and peak > max(said, figures.budget))
        if set_now and peak > said:
            self._unseen.exceeded(peak - said)
            self._due |= self._saved() > self._size  # of a larger batch
        elif said - peak > least and figures.plan.packed and self._tells():
            self._unseen.proved(self._seen, peak + least)
        else:
            return None
        return self._plan()

    def _tells(self) -> bool:
        """Does the peak bound all of a step by the plan that is like the recorded one?"""
        return not self._measured and not self._fell and self._saved() >= self._size

    def _by_earlier(self, exceeded: bool) -> None:
        """A step by the plan of an earlier attempt is over."""
        if exceeded:
            self.earlier.drop(EXCEEDED)
            self._go_on_with(None)

    def _plan(self) -> None:
        assert self._asked is not None
        assert self.step is not None
        choices = PlanChoices(self.step, self._unseen.at)
        plan, more, everything = (choices.fastest(most) for most in (self._budget, self._budget + NEXT, 0))
        self._plain, self._seen = plan.plain, choices.seen(plan)
        least, seconds = self._unseen.at_most(self.step), (everything.seconds, more.seconds)
        self._figures = BudgetFigures(self._asked.text, self._budget, plan, least, choices.most, *seconds, self._state)
        self._figures = replace(self._figures, earlier=self.earlier.words)
        self.earlier.planned(self._figures, self._unseen, self._device)

    def said(self) -> dict[str, Any]:
        """{} without a budget, and while nothing is planned."""
        return {} if self._figures is None else self._figures.said()
