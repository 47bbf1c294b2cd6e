"""Which layers are packed so that a step stays within a budget and takes least time: decided from one recorded step.

In that step all is packed that may be. A layer that is not takes more memory from the moment it saves to the moment it is read,
and no time. Layers are packed in the order of what that wins at the peak for a second of time, until the peak is low enough, or
left out from all in the opposite order; needless ones are left out, some exchanged, and the faster of both plans is taken.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch

from kompakt_runtime.budget.figures import BudgetPlan

Tensor = Any
MOST_SEARCHED: Final = 16  # layers up to which all choices are looked at
EXCHANGED: Final = 16  # layers that are tried in place of others
CPU: Final = "cpu"  # whatever the program made the default
LEAST_SECONDS: Final = 1e-9  # what took no time that could be measured


@dataclass(frozen=True)
class KeptTensor:
    """One packed tensor of the recorded step. nbytes: as it is; kept: packed, both in bytes; saved, read: the moments between
    which the difference is won, as places among the step's readings.
    """

    layer: str
    nbytes: int
    kept: int
    saved: int
    read: int


@dataclass(frozen=True)
class RecordedStep:
    """readings: bytes of the device in use at each moment; unseen: by how much the peak was above the highest of them; seconds:
    of packing and unpacking, by layer.
    """

    readings: Sequence[int]
    unseen: int
    tensors: Sequence[KeptTensor]
    seconds: Mapping[str, float]


class PlanChoices:
    """What each layer of a recorded step takes more when it stays as it is (a row of bytes by moment), and its seconds."""

    def __init__(self, step: RecordedStep, unseen: Tensor | None = None) -> None:
        """unseen: bytes by moment, in place of what the step has of them."""
        self.layers = list(dict.fromkeys(tensor.layer for tensor in step.tensors))
        places = {layer: place for place, layer in enumerate(self.layers)}
        changes = torch.zeros(len(self.layers), len(step.readings) + 1, dtype=torch.int64, device=CPU)
        for one in step.tensors:
            changes[places[one.layer], one.saved] += one.nbytes - one.kept
            changes[places[one.layer], one.read + 1] -= one.nbytes - one.kept
        self.more = changes.cumsum(1)[:, :-1]
        self.seconds = torch.tensor(
            [max(step.seconds.get(layer, 0.0), LEAST_SECONDS) for layer in self.layers], dtype=torch.float64, device=CPU
        )
        self._unseen = step.unseen if unseen is None else unseen
        self.packed = torch.tensor(step.readings, dtype=torch.int64, device=CPU) + self._unseen

    @property
    def most(self) -> int:
        """Bytes of the peak where no layer is packed."""
        return int((self.packed + self.more.sum(0)).max())

    def fastest(self, budget: int) -> BudgetPlan:
        """Where no choice is within the budget, all layers are packed."""
        if int(self.packed.max()) > budget:
            return self._plan(torch.ones(len(self.layers), dtype=torch.bool, device=CPU))
        none = torch.zeros(len(self.layers), dtype=torch.bool, device=CPU)
        starts = (self._filled(none, budget), self._from_all(budget))
        found = [self._exchanged(self._relieved(start, budget), budget) for start in starts if start is not None]
        return self._plan(min(found, key=self._time))

    def _time(self, chosen: Tensor) -> float:
        return float(self.seconds[chosen].sum())

    def _filled(self, chosen: Tensor, budget: int, without: int = -1) -> Tensor | None:
        """One layer after another is packed too: what wins most at the peak for a second. without: one that is not; None where
        all others do not suffice.
        """
        chosen, total = chosen.clone(), self._total(chosen)
        while int(total.max()) > budget:
            won = torch.where(chosen, -1.0, self.more[:, int(total.argmax())] / self.seconds)
            if without >= 0:
                won[without] = -1.0
            best = int(won.argmax())
            if won[best] <= 0:
                return None
            chosen[best], total = True, total - self.more[best]
        return chosen

    def _from_all(self, budget: int) -> Tensor:
        """One layer after another stays as it is: what saves most seconds for what it takes at its worst moment."""
        chosen = torch.ones(len(self.layers), dtype=torch.bool, device=CPU)
        total = self.packed
        for place in torch.argsort(self._rate, descending=True).tolist():
            if int((total + self.more[place]).max()) <= budget:
                chosen[place], total = False, total + self.more[place]
        return chosen

    def _relieved(self, chosen: Tensor, budget: int, kept: int = -1) -> Tensor:
        """Without those, the slowest first, that stay as they are within the budget all the same. kept: one that is packed."""
        chosen, total = chosen.clone(), self._total(chosen)
        for place in torch.argsort(torch.where(chosen, -self.seconds, torch.inf))[: int(chosen.sum())].tolist():
            more = total + self.more[place]
            if place != kept and int(more.max()) <= budget:
                chosen[place], total = False, more
        return chosen

    def _exchanged(self, chosen: Tensor, budget: int) -> Tensor:
        """With one more that is packed, in place of what then becomes needless, and without one of the slowest, in place of which
        others are packed, wherever that is faster.
        """
        for place in torch.argsort(torch.where(chosen, torch.inf, self._rate))[:EXCHANGED].tolist():
            more = chosen.clone()
            more[place] = True
            chosen = min(chosen, self._relieved(more, budget, kept=place), key=self._time)
        for place in torch.argsort(torch.where(chosen, -self.seconds, torch.inf))[:EXCHANGED].tolist():
            less = chosen.clone()
            less[place] = False
            others = self._filled(less, budget, without=place)
            if others is not None:
                chosen = min(chosen, self._relieved(others, budget), key=self._time)
        return chosen

    @property
    def _rate(self) -> Tensor:
        """Seconds for a byte of what packing a layer wins at its best moment."""
        return self.seconds / self.more.max(1).values.clamp(min=1)

    def best(self, budget: int) -> BudgetPlan:
        """By looking at all choices. Raises ValueError for more than MOST_SEARCHED layers."""
        if len(self.layers) > MOST_SEARCHED:
            raise ValueError(f"{len(self.layers)} layers are too many to look at all choices; at most {MOST_SEARCHED}")
        plans = [
            self._plan(
                torch.tensor([bool(choice >> place & 1) for place in range(len(self.layers))], dtype=torch.bool, device=CPU)
            )
            for choice in range(1 << len(self.layers))
        ]
        within = [plan for plan in plans if plan.peak <= budget]
        return min(within, key=lambda plan: plan.seconds) if within else plans[-1]

    def seen(self, plan: BudgetPlan) -> Tensor:
        """Bytes of a step by the plan at each moment, without what is unseen."""
        return self._total(torch.tensor([layer in plan.packed for layer in self.layers], device=CPU)) - self._unseen

    def _total(self, chosen: Tensor) -> Tensor:
        return self.packed + self.more[~chosen].sum(0)

    def _plan(self, chosen: Tensor) -> BudgetPlan:
        packed = frozenset(layer for layer, is_packed in zip(self.layers, chosen.tolist(), strict=True) if is_packed)
        seconds = float(self.seconds[chosen].sum())
        return BudgetPlan(frozenset(self.layers) - packed, packed, int(self._total(chosen).max()), seconds)
