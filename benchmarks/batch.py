"""How near a suggested batch comes to what truly fits; `python -m benchmarks.batch`.

A limit of memory is set at what a training with a larger batch takes. A training with a smaller one is then asked which batch
fits into that limit, and what truly fits is found by running it. Memory is the sum of live bytes of torch's own allocations on a
CPU, weights in it, from the profiler's events of all of a training; what the process takes besides is the same for every batch.
The watcher of memory is given exactly these figures: a training is run twice, and the second time it is told at each look what
the events of the first said of that moment.
"""

import argparse
import gc
import os
import platform
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch
from torch import nn
from torch.nn import functional as F
from torch.profiler import ProfilerActivity, profile

from benchmarks.accuracy_tasks import Block
from kompakt_runtime.config import Mode, RuntimeConfig
from kompakt_runtime.cost import headroom
from kompakt_runtime.cost.batch import Taken, largest_batch
from kompakt_runtime.session import Session

Tensor = Any
STEPS = 3  # from which on a batch is suggested
MARK = 7919  # bytes: an allocation of this size, freed at once, marks a moment among the events


@dataclass(frozen=True)
class Case:
    """A network, its input for a batch, and its optimizer."""

    network: Callable[[], nn.Module]
    shape: tuple[int, ...]
    optimizer: Callable[[Any], Any]
    large: int  # a batch whose memory is the limit


def convolutions(norm: bool, width: int) -> nn.Module:
    layers: list[nn.Module] = []
    for inputs, outputs in ((3, width), (width, width), (width, width), (width, 2 * width), (2 * width, 2 * width)):
        layers += [nn.Conv2d(inputs, outputs, 3, padding=1, bias=not norm)]
        layers += [nn.BatchNorm2d(outputs), nn.ReLU()] if norm else [nn.ReLU()]
        layers += [nn.MaxPool2d(2)] if outputs != inputs and inputs != 3 else []
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(2 * width * 4, 10))


def perceptron(width: int) -> nn.Module:
    layers = [part for _ in range(4) for part in (nn.Linear(width, width), nn.ReLU(), nn.Dropout(0.1))]
    return nn.Sequential(*layers, nn.Linear(width, 10))


class Transformer(nn.Module):  # type: ignore[misc]  # torch is looked at without its types
    """(batch, length, width) to (batch, 10)."""

    def __init__(self, width: int, blocks: int) -> None:
        super().__init__()
        self.blocks = nn.Sequential(*(Block(width, 4) for _ in range(blocks)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(self.blocks(x)).mean(1))


def sgd(weights: Any) -> Any:
    return torch.optim.SGD(weights, lr=0.01, momentum=0.9)


def adamw(weights: Any) -> Any:
    return torch.optim.AdamW(weights, lr=1e-3)


SMALL = {
    "five convolutions": Case(lambda: convolutions(False, 24), (3, 16, 16), sgd, 96),
    "convolutions with BatchNorm": Case(lambda: convolutions(True, 24), (3, 16, 16), sgd, 64),
    "linear layers with dropout": Case(lambda: perceptron(256), (256,), sgd, 2048),
    "transformer": Case(lambda: Transformer(64, 2), (32, 64), adamw, 48),
}
LARGE = {  # a hundred megabytes and more; minutes a network
    "five convolutions": Case(lambda: convolutions(False, 64), (3, 32, 32), sgd, 64),
    "convolutions with BatchNorm": Case(lambda: convolutions(True, 64), (3, 32, 32), sgd, 64),
    "linear layers with dropout": Case(lambda: perceptron(1024), (1024,), sgd, 4096),
    "transformer": Case(lambda: Transformer(256, 4), (64, 256), adamw, 64),
}
SIZES = {"small": SMALL, "large": LARGE}


def train(case: Case, samples: int, mode: Mode, **settings: Any) -> Session:
    """STEPS steps from the weights of seed 0, the same at every call."""
    torch.manual_seed(0)
    session = Session(RuntimeConfig(mode, activation_gradients="Exact", **settings))
    session.start()
    try:
        model = case.network()
        optimizer = case.optimizer(model.parameters())
        for step in range(STEPS):
            generator = torch.Generator().manual_seed(step)
            x = torch.randn(samples, *case.shape, generator=generator)
            labels = torch.randint(10, (samples,), generator=generator)
            optimizer.zero_grad()
            F.cross_entropy(model(x), labels).backward()
            optimizer.step()
            del x, labels
    finally:
        session.stop()
    return session


def live(action: Callable[[], Any]) -> tuple[list[int], list[int], int]:
    """Live bytes and the peak so far at each mark that the action sets, and the peak of all."""
    gc.collect()  # what an earlier training left in cycles must not be released among these events
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        action()
    held, peaks, now, highest = [], [], 0, 0
    for event in recorded.profiler.kineto_results.events():
        if event.name() != "[memory]":
            continue
        if event.nbytes() == MARK:
            held.append(now)
            peaks.append(highest)
        elif event.nbytes() != -MARK:
            now += event.nbytes()
            highest = max(highest, now)
    return held, peaks, highest


def mark(device: Any = None) -> int:
    torch.empty(MARK, dtype=torch.uint8)
    return 0


@contextmanager
def told(peak: Callable[[Any], int], held: Callable[[Any], int], limit: int) -> Any:
    with (
        mock.patch.object(headroom, "peak", peak),
        mock.patch.object(headroom, "held", held),
        mock.patch.object(headroom, "limit", return_value=limit),
    ):
        yield


def asked(case: Case, batch: int, mode: Mode, limit: int) -> tuple[int, int]:
    """What a training with this batch suggests for that limit, and what it took itself."""
    with told(mark, mark, limit):
        helds, peaks, highest = live(lambda: train(case, batch, mode, batch="Suggest"))
    places = iter(range(len(helds)))

    def one_of(figures: list[int]) -> Callable[[Any], int]:
        return lambda device: figures[next(places)]

    with told(one_of(peaks), one_of(helds), limit):
        session = train(case, batch, mode, batch="Suggest")
    assert next(places, None) is None, "the second training was not the first"
    return session.figures.suggested_batch, highest


def need(case: Case, batch: int, mode: Mode) -> int:
    return live(lambda: train(case, batch, mode))[2]


def fits(case: Case, mode: Mode, limit: int) -> int:
    """The largest batch that a training within `limit` has, from `case.large` on, which fits."""
    exact = case.large
    while need(case, exact + 1, mode) <= limit:
        exact += 1
    return exact


def show(name: str, case: Case, mode: Mode) -> None:
    limit = need(case, case.large, mode)
    exact = fits(case, mode, limit)
    print(f"\n{name}, {mode}: {limit / 1e6:.2f} MB, into which {exact} fit", flush=True)
    taken: list[Taken] = []
    for size in (case.large // 8, case.large // 4, case.large // 2):
        one, highest = asked(case, size, mode, limit)
        taken.append(Taken(size, highest))
        words = [f"one run with {size} ({highest / 1e6:.2f} MB): {one} ({one / exact - 1:+.1%})"]
        for count in range(2, len(taken) + 1):
            named = largest_batch(taken[-count:], limit)
            words.append(f"peaks of {count} sizes up to it: {named} ({named / exact - 1:+.1%})")
        print("  " + "; ".join(words), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--cases", choices=SMALL, nargs="+", default=list(SMALL))
    parser.add_argument("--sizes", choices=SIZES, nargs="+", default=["small"])
    parser.add_argument("--mode", choices=["Lossless", "ErrorBounded"], default="ErrorBounded")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{platform.machine()}, one thread, load {os.getloadavg()[0]:.1f}, torch {torch.__version__}")
    for size in arguments.sizes:
        for name in arguments.cases:
            show(f"{name}, {size}", SIZES[size][name], arguments.mode)


if __name__ == "__main__":
    main()
