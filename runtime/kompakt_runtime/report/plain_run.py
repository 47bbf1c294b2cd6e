"""Gradients of plain training beside those under compression, for `kompakt run --compare`: the program runs twice.

The plain run leaves each step's gradients in a folder, as the optimizer gets them, and ends. The compressed run compares its own
with these and then hands the plain ones to the optimizer, so that its weights stay those of plain training: each step is compared
from equal weights. Both runs begin with the same random numbers.
"""

import random
import shutil
import sys
from collections.abc import Iterable
from os import environ
from pathlib import Path
from typing import Any, Final

import torch

from kompakt_runtime.report.gradient_errors import GradientErrors
from kompakt_runtime.report.optimizer_steps import Names, Steps, weights_of

Tensor = Any
Gradients = list[Tensor | None]

MOST_BYTES: Final = 2_000_000_000  # of gradients on disk; no more than half of what is free
SEED: Final = 0
OWNER, SEVERAL = "owner", "several"


def begin_equally() -> None:
    """The same random numbers in both runs, unless the program sets seeds of its own."""
    random.seed(SEED)
    torch.manual_seed(SEED)
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed(SEED)


def local(t: Tensor) -> Tensor:
    """Of a sharded tensor this rank's part."""
    return t.to_local() if hasattr(t, "to_local") else t


def dense(t: Tensor) -> Tensor:
    return t.to_dense() if t.layout != torch.strided else t


def sums(weights: Iterable[Tensor]) -> list[tuple[float, float]]:
    """Enough of each weight to see whether it is the same in both runs."""
    found = [local(weight.detach()) for weight in weights]
    return [(float(t.sum(dtype=torch.float64)), float(t.abs().sum(dtype=torch.float64))) for t in found if not t.is_meta]


def sample(t: Tensor, share: float) -> Tensor:
    """Some elements, the same in both runs."""
    flat = t.reshape(-1)
    count = max(1, int(share * flat.numel())) if flat.numel() else 0
    places = torch.randint(max(1, flat.numel()), (count,), generator=torch.Generator().manual_seed(SEED))
    return flat[places.to(flat.device)]


def gradients(weights: Iterable[Tensor], share: float) -> Gradients:
    """share: of the elements; 1: all, and not copied."""
    found = [None if weight.grad is None else local(weight.grad.detach()) for weight in weights]
    return [None if g is None else g if share == 1 else sample(dense(g), share) for g in found]


def own_folder(folder: Path) -> Path:
    """This rank's, as it is known when the first step comes."""
    distributed = torch.distributed
    known = distributed.is_available() and distributed.is_initialized()
    path = folder / f"rank-{distributed.get_rank() if known else environ.get('RANK', '0')}"
    path.mkdir(parents=True, exist_ok=True)
    return path


def alone(folder: Path, owner: str) -> bool:
    """Whether no other process of this rank has come before."""
    try:
        (folder / owner).open("x").close()
    except FileExistsError:
        (folder / SEVERAL).touch()
    return not (folder / SEVERAL).exists()


class PlainRun:
    """The first of the two runs. It ends the program when so many steps are recorded."""

    def __init__(self, folder: str, steps: int, most: int = MOST_BYTES) -> None:
        self._folder, self._steps, self._most = Path(folder), steps, most
        self._share = 1.0
        self._number = self._turns = 0
        self._first: int | None = None
        self._watched = Steps(self._stepping)

    def _stepping(self, optimizer: Any, losses: list[float]) -> None:
        weights = weights_of(optimizer)
        if self._first is None:
            self._begin(optimizer, weights)
        if id(optimizer) == self._first:
            self._turns += 1
        if self._turns > self._steps:
            raise SystemExit(0)
        self._number += 1
        found = [None if g is None else g.cpu() for g in gradients(weights, self._share)]
        torch.save((sums(weights) if self._number == 1 else [], losses, found), self._folder / f"{self._number}.pt")
        torch.save((self._number, self._share), self._folder / "written.pt")

    def _begin(self, optimizer: Any, weights: list[Tensor]) -> None:
        self._first, self._folder = id(optimizer), own_folder(self._folder)
        if not alone(self._folder, OWNER):
            raise SystemExit(0)
        room = min(self._most, shutil.disk_usage(self._folder).free // 2)
        whole = sum(g.numel() * g.element_size() for g in gradients(weights, 1) if g is not None)
        if whole > room:
            self._steps, self._share = 1, room / whole
        else:
            self._steps = min(self._steps, room // max(1, whole))


class FollowingRun:
    """The second one, under compression. What goes wrong here ends the comparison and not the training."""

    def __init__(self, folder: str, steps: int) -> None:
        self._folder, self.errors = Path(folder), GradientErrors(steps)
        self._number = 0
        self._names = Names()
        self._watched = Steps(self._stepping)

    def _stepping(self, optimizer: Any, losses: list[float]) -> None:
        self._number += 1
        try:
            self._end(self._compared(optimizer, losses))
        except Exception as error:
            self._end(f"Failed{type(error).__name__}")

    def _end(self, reason: str | None) -> None:
        """None: the next step follows."""
        if reason is not None:
            self.errors.reason = reason
            self._watched.end()
            self._names.end()

    def _compared(self, optimizer: Any, losses: list[float]) -> str | None:
        """Why it ends here; "" after the last step of the plain run."""
        if self._number == 1:
            self._folder = own_folder(self._folder)
        path, weights = self._folder / f"{self._number}.pt", weights_of(optimizer)
        if self._number == 1 and not (alone(self._folder, "follower") and path.exists()):
            return "SeveralTrainers" if (self._folder / SEVERAL).exists() else "NoSteps"
        if not path.exists():
            return ""
        before, plain_losses, plain = torch.load(path, weights_only=False)
        last, share = torch.load(self._folder / "written.pt", weights_only=False)
        if self._number == 1 and before != sums(weights):
            return "WeightsDiffer"
        if not self.errors.losses_agree(plain_losses, losses):
            return "LossesDiffer"
        ours = gradients(weights, share)
        if [g is None for g in ours] != [g is None for g in plain]:
            return "StepsDiffer"
        self.errors.sampled = share < 1
        self.errors.add(self._squares(weights, plain, ours))
        if share == 1:
            follow(weights, plain)
        return "" if self._number >= last else None

    def _squares(self, weights: list[Tensor], plain: Gradients, ours: Gradients) -> dict[str, tuple[float, float]]:
        found: dict[str, tuple[float, float]] = {}
        for name, g, other in zip(self._names.layers(weights), plain, ours, strict=True):
            if g is not None and other is not None:
                square, error = found.get(name, (0.0, 0.0))
                g = dense(g).to(other.device)
                found[name] = (square + _square(g), error + _square(dense(other).double() - g.double()))
        return found


def _square(t: Tensor) -> float:
    return float(torch.linalg.vector_norm(t, dtype=torch.float64)) ** 2


def follow(weights: list[Tensor], plain: Gradients) -> None:
    """From here on the optimizer steps as in plain training."""
    with torch.no_grad():
        for weight, g in zip(weights, plain, strict=True):
            if g is None:
                continue
            if g.layout == torch.strided:
                local(weight.grad).copy_(g)
            else:
                weight.grad = g.to(weight.device)
