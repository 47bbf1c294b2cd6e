"""Measures one row of the zoo: some hundred passes of one model, plain and compressed in turn."""

import os
import statistics
from typing import Final

from benchmarks.zoo.compressed import Counted, Runtime
from benchmarks.zoo.gradients import Comparison, compared
from benchmarks.zoo.kept import Kept, kept_by_autograd
from benchmarks.zoo.models import ZOO
from benchmarks.zoo.rows import WARM, Held, InTurn, Row, Times
from benchmarks.zoo.training import Training, passed, stepped

BATCHES: Final = 20  # over which gradients are compared
UNSEEN: Final = 1000  # number of the first of them: no batch of the training has it
TURNS: Final = 9  # steps with and without compression in turn, of which one is measured


def measured(name: str, dtype: str, setting: str, target: float) -> Row:
    """All of one row; nothing else may compute in this process."""
    training = Training(ZOO[name], dtype)
    batch = training.batch(0)
    kept = kept_by_autograd(lambda: training.loss(batch), training.held(batch))
    plain = passed(training, batch)
    training.optimizer.zero_grad()
    runtime = Runtime(setting, target)
    try:
        return _row((name, dtype, setting, target), training, kept, plain, runtime)
    finally:
        runtime.close()


def _row(asked: tuple[str, str, str, float], training: Training, kept: Kept, plain: tuple[int, int], runtime: Runtime) -> Row:
    steps = warmed(training, runtime)
    after, peak, (begins, most), told = watched(training, runtime)
    gradients = alike(training, runtime)
    return Row(
        *asked,
        family=ZOO[asked[0]].family,
        parameters=sum(weight.numel() for weight in training.module.parameters()),
        kept=InTurn(plain[0], steps[0][0], sum(live for live, _ in steps), after),
        counted=kept.total,
        weights=kept.weights,
        held=Held(begins, most, kept.largest, kept.node),
        told=told,
        peaks=InTurn(plain[1], steps[0][1], max(highest for _, highest in steps), peak),
        times=timed(training, runtime),
        gradients=gradients,
        readers=kept.readers,
    )


def warmed(training: Training, runtime: Runtime) -> list[tuple[int, int]]:
    """What `passed` says of each of the first steps; the first has batch 0."""
    found = []
    for number in range(WARM):
        found.append(passed(training, training.batch(number), runtime.forwards))
        training.optimizer.step()
        runtime.steps += 1
    return found


def watched(training: Training, runtime: Runtime) -> tuple[int, int, tuple[int, int], Counted]:
    """After the first steps, on batch 0: live bytes, their peak, what the runtime held when the pass backward began and at most,
    its own words.
    """
    batch, before = training.batch(0), runtime.counted()
    kept, peak = passed(training, batch, runtime.forwards)
    told = runtime.counted().since(before)
    loss = training.loss(batch, runtime.forwards)
    begins = runtime.held
    loss.backward()
    training.optimizer.zero_grad()
    return kept, peak, (begins, runtime.most), told


def alike(training: Training, runtime: Runtime) -> Comparison:
    """Gradients with and without compression, from the same weights."""
    return compared(
        training.module,
        lambda number: training.loss(training.batch(number)),
        lambda number: training.loss(training.batch(number), runtime.forwards),
        range(UNSEEN, UNSEEN + BATCHES),
    )


def timed(training: Training, runtime: Runtime) -> Times:
    """Of steps in turn on two copies of the model."""
    plain = training.another()
    stepped(plain, plain.batch(0))  # the optimizer's state is made in the first
    times: dict[str, list[float]] = {"plain": [], "ours": [], "measured": []}
    for number in range(TURNS):
        batch = training.batch(number)
        times["plain"].append(stepped(plain, batch))
        times["measured" if runtime.measuring else "ours"].append(stepped(training, batch, runtime.forwards))
        runtime.steps += 1
    return Times(**{kind: statistics.median(seconds) for kind, seconds in times.items()}, load=os.getloadavg()[0])
