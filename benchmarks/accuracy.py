"""Does compression change what a network learns? Pairs of trainings of one seed; `python -m benchmarks.accuracy`.

The networks and their data stand in `accuracy_tasks.py`. Each seed is trained plainly and with each codec, on the same data in
the same order. Printed for each codec: mean difference of test accuracy in points with its 90 % interval (Student's t over
seeds); the same for the last epoch's mean training loss, in hundredths of the loss of guessing (ln of the number of classes);
the verdict "equal" where both whole intervals lie within +-0.5; how many times smaller the saved bytes were, and among them the
inputs of linear layers and convolutions; the peak of live bytes in one step; processor time of a step.

Codecs: lossless; error-bounded at three targets; inputs of norms, GELU and attention bounded too, at each; a fixed bound of
300 mean magnitudes, far too large, which must fail the test; and codes of fixed width for groups of 256 as in ActNN (Chen et
al., ICML 2021): 2 and 4 bits, stochastic rounding between a group's least and largest value, for the same tensors, with the
ReLU's own bit beside them where a ReLU reads them too. What no codec made: plain training again, its first gradient times
1.000001 ("nudged"), or each with noise of 0.01 of the mean |momentum| ("noise 0.01").
"""

import argparse
import json
import math
import platform
import statistics
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from scipy.stats import t as student  # type: ignore[import-untyped]  # scipy comes with scikit-learn, without types
from torch.nn import functional as F

from benchmarks.accuracy_codecs import CODECS, usual
from benchmarks.accuracy_tasks import DTYPES, TASKS, Data, Task
from benchmarks.memory import peak_of
from kompakt_runtime.figures.counted import Figures
from kompakt_runtime.figures.export import DENOMINATOR

Tensor = Any
BAND = 0.5  # points of accuracy, and hundredths of the loss of guessing


@dataclass(frozen=True)
class Outcome:
    """One training: test accuracy in percent, mean loss of the last epoch, processor time of a step in seconds.

    peak: of live bytes in one step, where it was measured; plain, saved: bytes of unique saved storages and what was kept;
    inputs, codes: the same of error-bounded inputs of linear layers and convolutions alone, warm-up not in it.
    """

    accuracy: float
    loss: float
    seconds: float
    peak: int = 0
    plain: int = 0
    saved: int = 0
    inputs: int = 0
    codes: int = 0

    def with_figures(self, figures: Figures) -> "Outcome":
        lossy = [row for name, row in figures.layers.items() if not name.endswith("]")]
        inputs, codes = sum(row.plain for row in lossy), sum(row.saved for row in lossy)
        return replace(self, plain=figures.plain_bytes, saved=figures.saved_bytes, inputs=inputs, codes=codes)


def rate(step: int, steps: int, warmup: float) -> float:
    """The learning rate's share of its greatest: rises linearly in the first steps, then falls by half a cosine to zero."""
    rising = int(warmup * steps)
    return (step + 1) / rising if step < rising else (1 + math.cos(math.pi * (step - rising) / (steps - rising))) / 2


def model_of(task: Task) -> Any:
    model = task.network()
    return model.to(torch.bfloat16) if task.dtype == "bfloat16" else model


def logits_of(model: Any, task: Task, inputs: Tensor) -> Tensor:
    """In float32, whatever the model computes in."""
    if task.dtype == "bfloat16" and inputs.is_floating_point():
        inputs = inputs.to(torch.bfloat16)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=task.dtype == "autocast"):
        logits = model(inputs)
    return logits.float()


def loss_of(model: Any, task: Task, examples: tuple[Tensor, Tensor], place: Tensor) -> Tensor:
    inputs, labels = examples
    return F.cross_entropy(logits_of(model, task, inputs[place]).flatten(0, -2), labels[place].flatten())


def accuracy_of(model: Any, task: Task, examples: tuple[Tensor, Tensor]) -> float:
    """In percent of all labels."""
    model.eval()
    inputs, labels = examples
    with torch.no_grad():
        answers = torch.cat([logits_of(model, task, part).argmax(-1) for part in inputs.split(128)])
    return 100 * float((answers == labels).float().mean())


def trained(task: Task, data: Data, seed: int, epochs: int, with_peak: bool = False) -> Outcome:
    """with_peak: measures one more step after all else, without an optimizer step."""
    torch.manual_seed(seed)
    model = model_of(task)
    optimizer = task.optimizer(model.parameters())
    order, count = torch.Generator().manual_seed(seed), len(data.train[1])
    steps = epochs * math.ceil(count / task.batch)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: rate(step, steps, task.warmup))
    losses: list[float] = []
    begun = time.thread_time()
    for _ in range(epochs):
        losses.clear()
        for place in torch.randperm(count, generator=order).split(task.batch):
            optimizer.zero_grad()
            loss = loss_of(model, task, data.train, place)
            loss.backward()
            optimizer.step()
            schedule.step()
            losses.append(loss.item())
    seconds = (time.thread_time() - begun) / steps
    outcome = Outcome(accuracy_of(model, task, data.test), statistics.fmean(losses), seconds)
    return replace(outcome, peak=peak_of_step(model, task, data)) if with_peak else outcome


def peak_of_step(model: Any, task: Task, data: Data) -> int:
    """Of forward and backward pass of a whole batch, gradients in it, weights not."""
    model.train()
    model.zero_grad()
    return peak_of(lambda: loss_of(model, task, data.train, torch.arange(task.batch)).backward(), torch.device("cpu"))


def interval(differences: list[float]) -> tuple[float, float]:
    """Mean and half the width of its 90 % interval; training that ended in NaN has none."""
    if not all(map(math.isfinite, differences)):
        return math.nan, math.inf
    spread = statistics.stdev(differences) / math.sqrt(len(differences))
    return statistics.fmean(differences), float(student.ppf(0.95, len(differences) - 1)) * spread


def equal(*intervals: tuple[float, float]) -> bool:
    """Does each whole interval lie within the band? Never for one that is not a number."""
    return all(abs(mean) + width <= BAND for mean, width in intervals)


def line(name: str, task: Task, plain: list[Outcome], ours: list[Outcome]) -> str:
    pairs = list(zip(plain, ours, strict=True))
    points = interval([b.accuracy - a.accuracy for a, b in pairs])
    loss = interval([100 * (b.loss - a.loss) / task.guessing for a, b in pairs])
    kept = sum(row.saved for row in ours)
    saved = f"{sum(row.plain for row in ours) / kept:6.2f}" if kept else "     -"
    codes = sum(row.codes for row in ours)
    inputs = f"{sum(row.inputs for row in ours) / codes:6.2f}" if codes else "     -"
    # Codes of fixed width are not really packed, so nothing is to be learnt from their memory.
    peak = "     -" if name.startswith("fixed") else f"{ours[0].peak / 1e6:6.2f}"
    return (
        f"  {name:20s} {statistics.fmean(row.accuracy for row in ours):6.2f} {points[0]:+7.2f} +- {points[1]:5.2f}"
        f"   {loss[0]:+7.2f} +- {loss[1]:5.2f}   {'equal' if equal(points, loss) else 'NOT equal':9s}"
        f"   {saved}   {inputs}   {peak}   {1000 * statistics.median(row.seconds for row in ours):6.1f}"
    )


class Record:
    """Outcomes that are known already, and a file that each new one is added to: a long run that was stopped goes on there."""

    def __init__(self, path: str | None) -> None:
        self._path, self._known = path, dict[str, Outcome]()
        if path is not None and Path(path).exists():
            for row in map(json.loads, Path(path).read_text().splitlines()):
                self._known[row["key"]] = Outcome(**row["outcome"])

    def outcome(self, codec: str, task: Task, data: Data, epochs: int, seed: int) -> Outcome:
        """Of one training, which runs now if it is not known."""
        key = f"{task.title}; {task.dtype}; epochs {epochs}; {codec}; seed {seed}; torch {torch.__version__}"
        if key not in self._known:
            self._known[key] = run(codec, task, data, epochs, seed)
            if self._path is not None:
                with open(self._path, "a") as file:
                    file.write(json.dumps({"key": key, "outcome": asdict(self._known[key])}) + "\n")
        return self._known[key]


def run(codec: str, task: Task, data: Data, epochs: int, seed: int) -> Outcome:
    if codec == "plain":
        return trained(task, data, seed, epochs, with_peak=seed == 0)
    with CODECS[codec]() as session:
        outcome = trained(task, data, seed, epochs, with_peak=seed == 0)
    return outcome.with_figures(session.figures)


def compare(task: Task, codecs: list[str], seeds: int, epochs: int, record: Record) -> None:
    data = task.data()
    # A seed's trainings one after the other: a slow hour of the machine falls on all codecs alike.
    rows = [[record.outcome(codec, task, data, epochs, seed) for codec in ("plain", *codecs)] for seed in range(seeds)]
    plain, *ours = map(list, zip(*rows, strict=True))
    spread = statistics.stdev(row.accuracy for row in plain)
    loss = statistics.fmean(row.loss for row in plain)
    print(f"\n{task.title}: {task.dtype}, batch {task.batch}, epochs {epochs}, seeds {seeds}")
    print(f"plain: standard deviation of accuracy over seeds {spread:.2f} points, loss {loss:.4f}")
    print(
        f"  {'':20s} {'%':>6s} {'points':>16s}   {'loss':>16s}   {'':9s}   {'all':>6s}   {'inputs':>6s}   {'MB':>6s}   {'ms':>6s}"
    )
    mean, seconds = statistics.fmean(row.accuracy for row in plain), statistics.median(row.seconds for row in plain)
    print(
        f"  {'plain':20s} {mean:6.2f} {'':50s}   1.00        -   {plain[0].peak / 1e6:6.2f}   {1000 * seconds:6.1f}", flush=True
    )
    for name, outcomes in zip(codecs, ours, strict=True):
        print(line(name, task, plain, outcomes), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--tasks", choices=TASKS, nargs="+", default=list(TASKS))
    parser.add_argument("--codecs", choices=CODECS, nargs="+", help="default: all for digits, five or six for the others")
    parser.add_argument("--seeds", type=int, help="default: the task's own number; at least 2")
    parser.add_argument("--epochs", type=int, help="default: the task's own number")
    parser.add_argument("--dtype", choices=DTYPES, default="float32", help="autocast: to bfloat16; bfloat16: weights too")
    parser.add_argument("--record", help="file to add each training's outcome to, and not to repeat what it has; per version")
    arguments = parser.parse_args()
    if arguments.seeds is not None and arguments.seeds < 2:
        parser.error("--seeds must be at least 2: one pair has no spread")
    torch.set_num_threads(1)
    print(f"{platform.machine()}, one thread, torch {torch.__version__}; all: {DENOMINATOR}, warm-up in it;")
    print(
        "inputs: those of linear layers and convolutions that were packed; MB: peak of live bytes; ms: processor time of a step"
    )
    record = Record(arguments.record)
    for name in arguments.tasks:
        task = replace(TASKS[name], dtype=arguments.dtype)
        compare(task, arguments.codecs or usual(name), arguments.seeds or task.seeds, arguments.epochs or task.epochs, record)


if __name__ == "__main__":
    main()
