"""Does compression change what a network learns? Pairs of trainings of one seed; `python -m benchmarks.accuracy`.

Real handwritten digits (scikit-learn's, 8x8), four convolutions with and without BatchNorm. Each seed is trained plainly and with
each codec, on the same data in the same order. Printed: mean difference of test accuracy in points with its 90 % interval
(Student's t over seeds), the same for the last epoch's training loss, and how many times smaller the saved bytes were.

Codecs: lossless; error-bounded at two targets; a fixed bound of 300 mean magnitudes, far too large, which must fail the test
(the whole interval within +-0.5 points); and codes of fixed width for groups of 256 as in ActNN (Chen et al., ICML 2021): 2 and 4
bits, stochastic rounding between a group's least and largest value, for the same tensors, with the ReLU's own bit beside them.
"""

import argparse
import math
import platform
import statistics
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from unittest import mock

import torch
from scipy.stats import t as student  # type: ignore[import-untyped]  # scipy comes with scikit-learn, without types
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn

from kompakt_runtime import ledger, observe
from kompakt_runtime.config import Config, Mode
from kompakt_runtime.export import DENOMINATOR
from kompakt_runtime.lossless import Mask, sign_mask
from kompakt_runtime.session import Session

GROUP = 256
BAND = 0.5  # points of accuracy


@dataclass
class Outcome:
    """One training: test accuracy in percent, mean loss of the last epoch, bytes of unique saved storages and what was kept."""

    accuracy: float
    loss: float
    plain: int = 0
    saved: int = 0


@dataclass(frozen=True)
class Groups:
    """Stands in for a packed tensor: codes of groups of GROUP values, with least value and step in float32 for each group."""

    codes: torch.Tensor
    least: torch.Tensor
    step: torch.Tensor
    signs: Mask
    bits: int

    @property
    def nbytes(self) -> int:
        """What packing the codes would take: they lie in a byte each here, because only accuracy is measured."""
        return int(math.ceil(self.signs.elements * self.bits / 8) + 8 * self.least.numel() + self.signs.nbytes)

    @staticmethod
    def of(flat: torch.Tensor, bits: int, generator: torch.Generator) -> "Groups":
        groups = nn.functional.pad(flat, (0, -flat.numel() % GROUP)).view(-1, GROUP)
        least = groups.amin(1, keepdim=True)
        step = ((groups.amax(1, keepdim=True) - least) / (2**bits - 1)).clamp(min=1e-30)
        noise = torch.rand(groups.shape, generator=generator)
        codes = ((groups - least) / step + noise).floor().clamp(0, 2**bits - 1).to(torch.uint8)
        return Groups(codes, least, step, sign_mask(flat), bits)

    def decode(self) -> torch.Tensor:
        values = (self.codes * self.step + self.least).view(-1)[: self.signs.elements]
        return values.clamp(min=1e-30) * self.signs.decode()


def network(norm: bool) -> nn.Sequential:
    """(batch, 1, 8, 8) pixels in 0..1 to (batch, 10) logits."""
    layers: list[nn.Module] = []
    for inputs, outputs, stride in ((1, 32, 1), (32, 32, 1), (32, 32, 1), (32, 64, 2)):
        layers += [nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1)]
        layers += [nn.BatchNorm2d(outputs), nn.ReLU()] if norm else [nn.ReLU()]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(64 * 16, 10))


@dataclass(frozen=True)
class Digits:
    """70 % of the scans to train on, 540 to test on; the same split in every run."""

    train: tuple[torch.Tensor, torch.Tensor]
    test: tuple[torch.Tensor, torch.Tensor]

    @staticmethod
    def load() -> "Digits":
        scans = load_digits()
        pixels = torch.tensor(scans.images, dtype=torch.float32).unsqueeze(1) / 16
        labels = torch.tensor(scans.target)
        train, test = train_test_split(range(len(labels)), test_size=0.3, random_state=0, stratify=scans.target)
        return Digits((pixels[train], labels[train]), (pixels[test], labels[test]))


def trained(data: Digits, norm: bool, seed: int, epochs: int) -> Outcome:
    torch.manual_seed(seed)
    model = network(norm)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
    order, (pixels, labels) = torch.Generator().manual_seed(seed), data.train
    losses: list[float] = []
    for epoch in range(epochs):
        for batch in torch.randperm(len(labels), generator=order).split(64):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(pixels[batch]), labels[batch])
            loss.backward()
            optimizer.step()
            losses += [loss.item()] if epoch == epochs - 1 else []
    model.eval()
    with torch.no_grad():
        right = (model(data.test[0]).argmax(1) == data.test[1]).float().mean()
    return Outcome(100 * float(right), statistics.fmean(losses))


@contextmanager
def compressed(mode: Mode, target: str = "0.01") -> Iterator[Session]:
    session = Session(Config(mode, target, min_tensor_bytes=16384))
    session.start()
    try:
        yield session
    finally:
        session.stop()


@contextmanager
def far_too_large() -> Iterator[Session]:
    """The test must be able to fail."""
    with (
        mock.patch.object(observe, "error_bound", lambda seen, target: 300 * seen.magnitude),
        compressed("ErrorBounded") as session,
    ):
        yield session


@contextmanager
def fixed_width(bits: int) -> Iterator[Session]:
    generator = torch.Generator().manual_seed(bits)

    def compress(entry: ledger.Entry, t: torch.Tensor, bound: float) -> bool:
        source = entry.alias if entry.alias is not None else ledger.whole_storage(t)
        entry.replace(Groups.of(source, bits, generator), source, bound=bound)  # type: ignore[arg-type]
        return True

    # Reads of such a copy are no promise, so nothing is to be compared with one.
    with mock.patch.object(ledger.Entry, "compress", compress), compressed("ErrorBounded") as session:
        yield session


CODECS: dict[str, Callable[[], AbstractContextManager[Session]]] = {
    "lossless": lambda: compressed("Lossless"),
    "error-bounded 0.01": lambda: compressed("ErrorBounded", "0.01"),
    "error-bounded 0.1": lambda: compressed("ErrorBounded", "0.1"),
    "fixed 4 bit": lambda: fixed_width(4),
    "fixed 2 bit": lambda: fixed_width(2),
    "far too large": far_too_large,
}


def interval(differences: list[float]) -> tuple[float, float]:
    """Mean and half the width of its 90 % interval; training that ended in NaN has none."""
    if not all(map(math.isfinite, differences)):
        return math.nan, math.inf
    spread = statistics.stdev(differences) / math.sqrt(len(differences))
    return statistics.fmean(differences), float(student.ppf(0.95, len(differences) - 1)) * spread


def line(name: str, plain: list[Outcome], ours: list[Outcome]) -> str:
    points, width = interval([b.accuracy - a.accuracy for a, b in zip(plain, ours, strict=True)])
    loss, loss_width = interval([b.loss - a.loss for a, b in zip(plain, ours, strict=True)])
    ratio = sum(row.plain for row in ours) / max(1, sum(row.saved for row in ours))
    verdict = "equal" if abs(points) + width <= BAND else "NOT equal"
    mean = statistics.fmean(row.accuracy for row in ours)
    return (
        f"  {name:20s} {mean:6.2f} %   {points:+6.2f} +- {width:.2f} points ({verdict})"
        f"   loss {loss:+.4f} +- {loss_width:.4f}   {ratio:5.2f} times smaller"
    )


def compare(data: Digits, norm: bool, arguments: argparse.Namespace) -> None:
    seeds = range(arguments.seeds)
    plain = [trained(data, norm, seed, arguments.epochs) for seed in seeds]
    spread = statistics.stdev(row.accuracy for row in plain)
    kind = f"four convolutions {'with' if norm else 'without'} BatchNorm"
    print(f"\n{kind}, float32, batch 64, {arguments.epochs} epochs, {len(seeds)} seeds")
    mean = statistics.fmean(row.accuracy for row in plain)
    print(f"  {'plain':20s} {mean:6.2f} %   (standard deviation over seeds {spread:.2f})", flush=True)
    for name in arguments.codecs:
        ours = []
        for seed in seeds:
            with CODECS[name]() as session:
                outcome = trained(data, norm, seed, arguments.epochs)
            ours.append(replace(outcome, plain=session.figures.plain_bytes, saved=session.figures.saved_bytes))
        print(line(name, plain, ours), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--norm", choices=["with", "without"], nargs="+", default=["without", "with"], help="BatchNorm")
    parser.add_argument("--codecs", choices=CODECS, nargs="+", default=list(CODECS))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{platform.machine()}, one thread, torch {torch.__version__}; 'times smaller': {DENOMINATOR}, warm-up in it")
    data = Digits.load()
    for word in arguments.norm:
        compare(data, word == "with", arguments)


if __name__ == "__main__":
    main()
