"""Which layers are packed so that a step stays within a budget and takes least time: decided from one recorded step.

In that step all is packed that may be. A layer that is not takes more memory from the moment it saves to the moment it is read,
and no time. Layers are packed in the order of what that wins at the peak for a second of time, until the peak is low enough;
then those that turned out needless stay as they are after all.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch

Tensor = Any
MOST_SEARCHED: Final = 16  # layers up to which all choices are looked at
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


@dataclass(frozen=True)
class BudgetPlan:
    """plain: layers that stay as they are; packed: the others; peak: bytes that the step then takes at most; seconds: of packing
    and unpacking in it.
    """

    plain: frozenset[str]
    packed: frozenset[str]
    peak: int
    seconds: float


class Choices:
    """What each layer of a recorded step takes more when it stays as it is (a row of bytes by moment), and its seconds."""

    def __init__(self, step: RecordedStep) -> None:
        self.layers = list(dict.fromkeys(tensor.layer for tensor in step.tensors))
        places = {layer: place for place, layer in enumerate(self.layers)}
        changes = torch.zeros(len(self.layers), len(step.readings) + 1, dtype=torch.int64)
        for one in step.tensors:
            changes[places[one.layer], one.saved] += one.nbytes - one.kept
            changes[places[one.layer], one.read + 1] -= one.nbytes - one.kept
        self.more = changes.cumsum(1)[:, :-1]
        self.seconds = torch.tensor(
            [max(step.seconds.get(layer, 0.0), LEAST_SECONDS) for layer in self.layers], dtype=torch.float64
        )
        self.packed = torch.tensor(step.readings, dtype=torch.int64) + step.unseen

    @property
    def most(self) -> int:
        """Bytes of the peak where no layer is packed."""
        return int((self.packed + self.more.sum(0)).max())

    def fastest(self, budget: int) -> BudgetPlan:
        """Where no choice is within the budget, all layers are packed."""
        chosen = torch.zeros(len(self.layers), dtype=torch.bool)
        total = self.packed + self.more.sum(0)
        while not chosen.all() and int(total.max()) > budget:
            won = self.more[:, int(total.argmax())] / self.seconds
            best = int(torch.where(chosen, -torch.inf, won).argmax())
            if won[best] <= 0:
                chosen[:] = True
                break
            chosen[best] = True
            total = total - self.more[best]
        return self._plan(self._relieved(chosen, budget))

    def _relieved(self, chosen: Tensor, budget: int) -> Tensor:
        """Without those, the slowest first, that stay as they are within the budget all the same."""
        total = self._total(chosen)
        for place in sorted(range(len(self.layers)), key=lambda place: -float(self.seconds[place])):
            more = total + self.more[place]
            if chosen[place] and int(more.max()) <= budget:
                chosen[place], total = False, more
        return chosen

    def best(self, budget: int) -> BudgetPlan:
        """By looking at all choices. Raises ValueError for more than MOST_SEARCHED layers."""
        if len(self.layers) > MOST_SEARCHED:
            raise ValueError(f"{len(self.layers)} layers are too many to look at all choices; at most {MOST_SEARCHED}")
        plans = [
            self._plan(torch.tensor([bool(choice >> place & 1) for place in range(len(self.layers))], dtype=torch.bool))
            for choice in range(1 << len(self.layers))
        ]
        within = [plan for plan in plans if plan.peak <= budget]
        return min(within, key=lambda plan: plan.seconds) if within else plans[-1]

    def _total(self, chosen: Tensor) -> Tensor:
        return self.packed + self.more[~chosen].sum(0)

    def _plan(self, chosen: Tensor) -> BudgetPlan:
        packed = frozenset(layer for layer, is_packed in zip(self.layers, chosen.tolist(), strict=True) if is_packed)
        seconds = float(self.seconds[chosen].sum())
        return BudgetPlan(frozenset(self.layers) - packed, packed, int(self._total(chosen).max()), seconds)
