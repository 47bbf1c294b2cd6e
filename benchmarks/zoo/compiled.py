"""What compiled models keep for their backward pass, with compression and without; `python -m benchmarks.zoo.compiled`.

Each model is trained four times from the same weights on the same batches: as it is and by torch.compile (inductor), plainly and
compressed. Printed are megabytes that live after a pass forward and the loss, above what was live before, after WARM steps; their
ratios; the largest of all live bytes of a pass; and, for compiled training, what compression changes in the gradient of the
next batch, and how many graphs were made.
"""

import argparse
import platform
from dataclasses import dataclass
from typing import Any

import torch

from benchmarks.zoo.compressed import SETTINGS, Runtime
from benchmarks.zoo.models import ZOO
from benchmarks.zoo.rows import WARM
from benchmarks.zoo.training import NOTHING, Around, Training, passed

HEADER = (
    "| model | eager, MB | compressed | compiled, MB | compressed | ratio | over eager compressed | peak, MB | compressed | "
    "gradient off by | graphs |"
)


@dataclass(frozen=True)
class Trained:
    """kept, peak: bytes of a pass after WARM steps; graphs: that were made; off: ||g' - g|| / ||g|| of all weights together, of
    one more batch with compression and without, by the same code from the same weights.
    """

    kept: int
    peak: int
    graphs: int
    off: float


def trained(name: str, setting: str | None, target: float, compiled: bool) -> Trained:
    """setting: of the runtime; None for plain training."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    training = Training(ZOO[name], "float32")
    runtime = None if setting is None else Runtime(setting, target)
    around: Around = NOTHING if runtime is None else runtime.forwards
    if compiled:
        with around:
            training.module.compile()
    try:
        for number in range(WARM):
            passed(training, training.batch(number), around)
            training.optimizer.step()
        kept, peak = passed(training, training.batch(0), around)
        ours, plain = (gradients(training, one) for one in (around, NOTHING))
    finally:
        if runtime is not None:
            runtime.close()
    return Trained(kept, peak, torch._dynamo.utils.counters["stats"]["unique_graphs"], off(ours, plain))


def gradients(training: Training, around: Around) -> dict[str, Any]:
    training.optimizer.zero_grad()
    torch.manual_seed(0)
    training.loss(training.batch(WARM), around).backward()
    return {name: weight.grad.clone() for name, weight in training.module.named_parameters() if weight.grad is not None}


def off(ours: dict[str, Any], plain: dict[str, Any]) -> float:
    wrong = sum(float((ours[name] - plain[name]).double().square().sum()) for name in plain)
    return float((wrong / sum(float(g.double().square().sum()) for g in plain.values())) ** 0.5)


def row(name: str, setting: str, target: float) -> str:
    eager, less = (trained(name, one, target, compiled=False) for one in (None, setting))
    code, packed = (trained(name, one, target, compiled=True) for one in (None, setting))
    numbers = [eager.kept / 1e6, less.kept / 1e6, code.kept / 1e6, packed.kept / 1e6]
    cells = [*(f"{number:.1f}" for number in numbers), f"{code.kept / packed.kept:.2f}", f"{packed.kept / less.kept:.2f}"]
    cells += [f"{code.peak / 1e6:.1f}", f"{packed.peak / 1e6:.1f}", f"{packed.off:.4f}"]
    return f"| {name} | {' | '.join(cells)} | {code.graphs}, {packed.graphs} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", choices=ZOO, nargs="+", default=list(ZOO))
    parser.add_argument("--setting", choices=SETTINGS, default="default")
    parser.add_argument("--target", type=float, default=0.01)
    given = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{platform.machine()}, one thread, torch {torch.__version__}, setting {given.setting}, target {given.target}\n")
    print(HEADER, "|---|" + "---:|" * 10, sep="\n", flush=True)
    for name in given.models:
        print(row(name, given.setting, given.target), flush=True)


if __name__ == "__main__":
    main()
