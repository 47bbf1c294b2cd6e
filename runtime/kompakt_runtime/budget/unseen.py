"""What a step takes beyond the readings of the recorded one, moment by moment: first as much as any step ever took, which counts
what measuring took besides; then no more than steps by the plan prove.

The device's peak never falls, so after a step it is an upper bound of what that step took, at each of its moments.
"""

from collections.abc import Sequence
from typing import Any, Final

import torch

from kompakt_runtime.budget.passes import digest
from kompakt_runtime.budget.plan import CPU, RecordedStep
from kompakt_runtime.budget.recording import Recording

Tensor = Any
SPARE: Final = 32  # one part of so many of a budget is left for steps that are a little larger than the one that proved it


class UnseenBytes:
    """Bytes beyond the readings, by moment of the step that was recorded last."""

    def __init__(self) -> None:
        self._before = 0  # of an earlier recorded step, whose peak was known
        self._known = False  # the last one's was
        self._highest = 0  # reading of the last one
        self._margin = 0  # by how much a step took more than its plan said
        self._moments = ""  # a digest
        self._at: Tensor = torch.zeros(0, dtype=torch.int64, device=CPU)

    def ended(self, recording: Recording, peak: int | None) -> None:
        """A recorded step is over. peak: its own, in bytes, if that is known."""
        self._before, self._known = recording.ended(peak, self._before), peak is not None
        # What a larger batch takes was in the margin, and is in the readings now.
        self._margin = max(0, self._margin - max(0, recording.highest - self._highest))
        self._highest = recording.highest

    def recorded(self, step: RecordedStep) -> None:
        """What was proved still holds where the step has the same moments, of tensors of the same size. Layers do not matter: of
        two operations that read one tensor, now this and now that has the tighter bound.
        """
        moments = digest((len(step.readings), [(one.nbytes, one.saved, one.read) for one in step.tensors]))
        at = torch.full((len(step.readings),), step.unseen, dtype=torch.int64, device=CPU)
        same = moments == self._moments and len(self._at) == len(at)
        self._at = torch.minimum(at, self._at) if same and not self._known else at
        self._moments = moments

    def state(self) -> tuple[int, tuple[int, ...], str]:
        """For a process that begins where this one is: bytes of any moment, by moment, and which moments these are."""
        return self._before + self._margin, tuple(self.at.tolist()), self._moments

    def load(self, before: int, at: Sequence[int], moments: str) -> None:
        """As `state` gave it, before anything is recorded."""
        self._before, self._moments = before, moments
        self._at = torch.tensor(at, dtype=torch.int64, device=CPU)

    @property
    def at(self) -> Tensor:
        """A row of bytes."""
        return self._at + self._margin

    def at_most(self, step: RecordedStep) -> int:
        """Bytes of the peak with all packed, where that of no step by a plan is counted."""
        return max(step.readings) + step.unseen + self._margin

    def exceeded(self, more: int) -> None:
        """A step by the plan took so many bytes more than the plan said."""
        self._margin += more

    def proved(self, totals: Tensor, most: int) -> None:
        """A step of which the plan counts so many bytes, a row by moment, without what is unseen, took no more than `most`."""
        self._at = torch.minimum(self._at, (most - totals - self._margin).clamp(min=0))


def spare(budget: int) -> int:
    """In bytes."""
    return budget // SPARE
