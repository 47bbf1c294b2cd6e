"""Whether trainings stay within a budget of memory, and what that costs; `python -m benchmarks.budget`.

Models of the zoo train from the same weights on the same batches: plainly, with all packed, and with budgets between what a step
holds at most with all packed and with nothing packed. Printed are, for each budget: the most that the runtime held in any step by
the plan; the layers that were packed; packing's and unpacking's time in a step by the plan and with all packed; how far a plan is
above the best of all choices, where the 16 layers that win most are chosen from and the others are packed; the step's median
time beside plain training's and that with all packed.

Memory is read as what the runtime holds for backward passes, which is exact on a CPU; resident memory is not.
"""

import argparse
import platform
import statistics
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

import torch

from benchmarks.zoo.models import ZOO
from benchmarks.zoo.training import NOTHING, Training, stepped
from kompakt_runtime.amounts import Amount
from kompakt_runtime.bounds.layer import observed
from kompakt_runtime.budget.plan import MOST_SEARCHED, PlanChoices, RecordedStep
from kompakt_runtime.config import RuntimeConfig
from kompakt_runtime.session import Session

SIX: Final = ("resnet50 (torchvision)", "mobilenetv3_large_100 (timm)", "ViT", "BERT", "GPT-2", "Llama")
SHARES: Final = (0.75, 0.5, 0.25)
STEPS: Final = 16
PLANNED: Final = 10  # steps until plans rest on measured bounds; the ones after count
HEADER: Final = (
    "| model | budget, MB | held at most | layers packed | codec, ms | all packed | above best | step, ms | plain | all packed |"
)


class HeldMemory:
    """What the runtime holds for backward passes."""

    def __init__(self, figures: Any, device: Any) -> None:
        self._holding = figures.holding

    def there(self) -> int:
        return 1 << 40

    def now(self) -> int:
        return int(self._holding.held)

    def peak(self) -> int:
        return int(self._holding.worst.held)


@dataclass(frozen=True)
class Trained:
    """seconds: median of the steps that count; held: the most in these; said: of the budget; step: as recorded."""

    seconds: float
    held: int
    said: dict[str, Any]
    step: RecordedStep | None


@contextmanager
def session_of(budget: int | None) -> Iterator[Session | None]:
    if budget is None:
        yield None
        return
    session = Session(RuntimeConfig(mode="ErrorBounded", memory_budget=Amount.of(str(budget))), memory=HeldMemory)
    session.start()
    try:
        yield session
    finally:
        session.stop()


def trained(name: str, budget: int | None) -> Trained:
    """budget: bytes; None for plain training."""
    training = Training(ZOO[name], "float32")
    seconds, held = [], [0]
    with session_of(budget) as session:
        for number in range(STEPS):
            took = stepped(training, training.batch(number % 4), NOTHING)
            if number >= PLANNED and not observed(number):
                seconds.append(took)
                held.append(session.figures.holding.last.held if session is not None else 0)
        said = dict(session.figures.budget()) if session is not None else {}
        return Trained(statistics.median(seconds), max(held), said, session.recorded_step if session is not None else None)


def above_best(step: RecordedStep, share: float) -> float:
    """By how much a plan's seconds are above those of the best choice, for a budget that lies so far between all and none packed,
    where only the layers that win most are chosen from.
    """
    won: dict[str, int] = {}
    for one in step.tensors:
        won[one.layer] = won.get(one.layer, 0) + one.nbytes - one.kept
    largest = sorted(won, key=lambda layer: -won[layer])[:MOST_SEARCHED]
    choices = PlanChoices(replace(step, tensors=[one for one in step.tensors if one.layer in largest]))
    least = choices.fastest(0).peak
    budget = int(least + share * (choices.most - least))
    plan, best = choices.fastest(budget), choices.best(budget)
    return plan.seconds / best.seconds - 1 if best.seconds else 0.0


def rows(name: str) -> Iterator[str]:
    plain, packed = trained(name, None), trained(name, 1)
    least, most = packed.said["leastBytes"], packed.said["plainBytes"]
    for share in SHARES:
        budget = int(least + share * (most - least))
        by_plan = trained(name, budget)
        said = by_plan.said
        cells = [
            f"{budget / 1e6:.1f}", f"{by_plan.held / 1e6:.1f}", f"{said['packed']} of {said['layers']}",
            f"{said['milliseconds']:.0f}",
            f"{said['allMilliseconds']:.0f}",
            f"{above_best(packed.step, share):.1%}" if packed.step else "-",
            *(f"{1e3 * one.seconds:.0f}" for one in (by_plan, plain, packed)),
        ]  # fmt: skip
        yield f"| {name} | {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", choices=ZOO, nargs="+", default=list(SIX))
    given = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{platform.machine()}, one thread, torch {torch.__version__}, target 0.01, processor time\n")
    print(HEADER, "|---|" + "---:|" * 9, sep="\n", flush=True)
    for name in given.models:
        for row in rows(name):
            print(row, flush=True)


if __name__ == "__main__":
    main()
