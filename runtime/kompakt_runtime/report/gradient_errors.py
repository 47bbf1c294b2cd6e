"""How far gradients were off from plain training's, by layer and over steps.

The measure is ||g' - g|| / ||g||, with g the gradient of plain training and g' the one under compression, both as the optimizer
gets them, from equal weights, equal batches and equal random numbers. No torch here: `kompakt run` shows files of processes.
"""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from kompakt_runtime.report.rows import aligned

ALL: Final = ""  # all weights together
# Of the length of all gradients together: shorter ones are what rounding leaves where mathematics says zero.
SMALL: Final = 1e-6
LOSS_TOLERANCE: Final = 1e-5  # of the loss: equal weights give equal losses, but for kernels that add in any order
# Why there is nothing to compare, or nothing from some step on.
REASONS: Final = {
    "WeightsDiffer": "the program begins with other weights in each run, so it is not reproducible and nothing can be compared",
    "LossesDiffer": "the program's losses differ although its weights do not, so it is not reproducible",
    "StepsDiffer": "the program steps other weights in each run, so it is not reproducible",
    "SeveralTrainers": "several processes of one rank train, so their gradients cannot be told apart",
    "NoSteps": "no optimizer of torch.optim's kind stepped without compression",
}

Said = dict[str, Any]


@dataclass
class GradientErrors:
    """What one process has compared; wanted: steps that were asked for; sampled: of larger gradients, some elements."""

    wanted: int
    steps: int = 0
    reason: str = ""
    sampled: bool = False
    equal: int = 0  # losses that were the same to the last bit
    losses: list[float] = field(default_factory=list)
    layers: dict[str, list[float]] = field(default_factory=dict)

    def losses_agree(self, plain: Sequence[float], ours: Sequence[float]) -> bool:
        """One step's; remembers how far they were apart, if they may be."""
        if len(plain) != len(ours):
            return False
        apart = [abs(b - a) / max(abs(a), 1e-30) if not _same(a, b) else 0.0 for a, b in zip(plain, ours, strict=True)]
        if not all(difference <= LOSS_TOLERANCE for difference in apart):
            return False
        if apart:
            self.equal += not any(apart)
            self.losses.append(max(apart))
        return True

    def add(self, squares: Mapping[str, tuple[float, float]]) -> None:
        """One step: ||g||² and ||g' - g||² of each layer."""
        everything = sum(square for square, _ in squares.values())
        wrong = sum(error for _, error in squares.values())
        self.steps += 1
        for name, (square, error) in {ALL: (everything, wrong), **squares}.items():
            if square > SMALL**2 * everything:
                self.layers.setdefault(name, []).append(math.sqrt(error / square))

    def said(self) -> Said:
        """For the process's file."""
        return {
            "wanted": self.wanted,
            "steps": self.steps,
            "reason": self.reason,
            "sampled": self.sampled,
            "equalLosses": self.equal,
            "lossSteps": len(self.losses),
            "lossDifference": max(self.losses, default=0.0),
            "layers": {name: [statistics.median(errors), max(errors)] for name, errors in self.layers.items()},
        }


def _same(a: float, b: float) -> bool:
    return a == b or (math.isnan(a) and math.isnan(b))


@dataclass(frozen=True)
class LayerError:
    """Median and worst of a layer's errors over steps."""

    name: str
    median: float
    worst: float


@dataclass(frozen=True)
class GradientComparison:
    """What a report says of it. Of several ranks the one that was off most; of the layers the worst come first."""

    wanted: int
    steps: int
    reason: str
    sampled: bool
    equal_losses: int
    loss_steps: int
    loss_difference: float
    overall: LayerError | None
    layers: tuple[LayerError, ...]

    @staticmethod
    def of(told: Iterable[Said]) -> "GradientComparison | None":
        found = [GradientComparison._of(said) for said in told if said]
        return max(found, key=lambda one: (bool(one.reason), one.overall.worst if one.overall else 0.0), default=None)

    @staticmethod
    def _of(said: Said) -> "GradientComparison":
        rows = [LayerError(name, *errors) for name, errors in said["layers"].items()]
        layers = sorted((row for row in rows if row.name != ALL), key=lambda row: -row.worst)
        overall = next((row for row in rows if row.name == ALL), None)
        return GradientComparison(
            wanted=said["wanted"],
            steps=said["steps"],
            reason=said["reason"],
            sampled=said["sampled"],
            equal_losses=said["equalLosses"],
            loss_steps=said["lossSteps"],
            loss_difference=said["lossDifference"],
            overall=overall,
            layers=tuple(layers),
        )

    def sentences(self) -> list[str]:
        """What stands above the rows of layers."""
        found = [] if not self.steps else [self._figures(), self._losses()]
        if self.reason:
            after = f"after {self.steps} steps " if self.steps else ""
            found.append(f"the comparison with plain training ended {after}early: {REASONS.get(self.reason, self.reason)}")
        elif self.steps < self.wanted:
            found.append(f"{self.steps} of {self.wanted} steps: so many were there, or found room on disk")
        return found

    def _figures(self) -> str:
        sample = " of a sample of their elements" if self.sampled else ""
        worst = f"{self.overall.median:.2%} in the median, {self.overall.worst:.2%} at worst" if self.overall else "zero in both"
        return f"gradients{sample} against plain training's, ||g' - g|| / ||g||, {self.steps} steps: {worst}"

    def _losses(self) -> str:
        if not self.loss_steps:
            return "no loss was seen, for whoever began the backward passes did not call torch.autograd.backward"
        if self.equal_losses == self.loss_steps:
            return f"losses equal to the last bit in all {self.loss_steps} steps"
        found = f"losses equal to the last bit in {self.equal_losses} of {self.loss_steps} steps"
        return f"{found}, else off by a share of {self.loss_difference:.1e} at most"

    def lines(self) -> list[str]:
        return [*self.sentences(), *(aligned(("layer", "median", "worst step"), self._cells()) if self.layers else [])]

    def table(self) -> Any:
        """A rich.table.Table that fits 80 columns; needs the package rich."""
        from rich import box
        from rich.markup import escape
        from rich.table import Table

        table = Table(title="\n".join(self.sentences()), box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
        table.add_column("layer", overflow="fold")
        for name in ("median\n||g' - g|| / ||g||", "worst\nstep"):
            table.add_column(name, justify="right", no_wrap=True)
        for cells in self._cells():
            table.add_row(*map(escape, cells))
        return table

    def _cells(self) -> list[tuple[str, str, str]]:
        return [(row.name, f"{row.median:.2%}", f"{row.worst:.2%}") for row in self.layers]
