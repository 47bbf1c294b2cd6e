"""What compression does to gradients: the same batches from the same weights, with it and without."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

import torch

Tensor = Any
Module = Any
Loss = Callable[[int], Tensor]  # of the batch of a number

ALL: Final = "all layers"


@dataclass(frozen=True)
class LayerError:
    """Of one weight's gradient g over some batches, where compression makes g'. All are shares, 0 for no error.

    error: root mean square of ||g' - g|| over that of ||g||; worst: the largest ||g' - g|| / ||g|| of a batch; spread: what
    batches differ by, root mean square of ||g - mean g|| over that of ||g||; common: ||mean of g' - g|| over the root mean square
    of ||g' - g||: 1 where each batch has the same error, one over the root of their number where errors have nothing in common;
    size: root mean square of ||g|| over that of all weights together.
    """

    name: str
    error: float
    worst: float
    spread: float
    common: float
    size: float


@dataclass(frozen=True)
class Comparison:
    """batches: how many; equal: in how many of them both losses were the same to the last bit; layers: with ALL among them."""

    batches: int
    equal: int
    layers: list[LayerError] = field(default_factory=list)


class Tally:
    """Running sums over batches of one weight."""

    def __init__(self) -> None:
        self.squares = self.errors = self.worst = 0.0
        self._gradients: Tensor = None
        self._errors: Tensor = None

    def add(self, plain: Tensor, ours: Tensor) -> tuple[float, float]:
        """Returns ||g||² and ||g' - g||²."""
        plain, error = plain.double(), ours.double() - plain.double()
        square, wrong = float(plain.square().sum()), float(error.square().sum())
        self._gradients = plain if self._gradients is None else self._gradients + plain
        self._errors = error if self._errors is None else self._errors + error
        self.see(square, wrong)
        return square, wrong

    def see(self, square: float, wrong: float) -> None:
        self.squares, self.errors = self.squares + square, self.errors + wrong
        self.worst = max(self.worst, math.sqrt(wrong / square)) if square else self.worst

    def sums(self) -> tuple[float, float]:
        """Squares of the lengths of the summed gradients and of the summed errors."""
        if self._gradients is None:
            return 0.0, 0.0
        return float(self._gradients.square().sum()), float(self._errors.square().sum())


def layer_error(name: str, tally: Tally, sums: tuple[float, float], batches: int, everything: float) -> LayerError | None:
    """None where no batch gave a gradient. everything: the sum of squares of all weights' gradients."""
    if not tally.squares:
        return None
    gradients, errors = sums
    apart = max(0.0, tally.squares - gradients / batches) / (batches - 1) * batches
    return LayerError(
        name,
        error=math.sqrt(tally.errors / tally.squares),
        worst=tally.worst,
        spread=math.sqrt(apart / tally.squares),
        common=math.sqrt(errors / batches / tally.errors) if tally.errors else 0.0,
        size=math.sqrt(tally.squares / everything),
    )


def compared(model: Module, plain: Loss, ours: Loss, numbers: Iterable[int]) -> Comparison:
    """By weight, and of all together. The same random numbers are drawn in both passes of a batch."""
    numbers = list(numbers)
    tallies: dict[str, Tally] = {ALL: Tally()}
    equal = 0
    for number in numbers:
        (loss, g), (other, compressed) = (_seeded(model, one, number) for one in (plain, ours))
        equal += loss == other
        assert g.keys() == compressed.keys(), "another part of the model was reached"
        pairs = [tallies.setdefault(name, Tally()).add(g[name], compressed[name]) for name in g]
        tallies[ALL].see(sum(square for square, _ in pairs), sum(wrong for _, wrong in pairs))
    return Comparison(len(numbers), equal, _layers(tallies, len(numbers)))


def _layers(tallies: dict[str, Tally], batches: int) -> list[LayerError]:
    sums = {name: tally.sums() for name, tally in tallies.items()}
    sums[ALL] = (sum(gradient for gradient, _ in sums.values()), sum(error for _, error in sums.values()))
    found = [layer_error(name, tally, sums[name], batches, tallies[ALL].squares) for name, tally in tallies.items()]
    return [layer for layer in found if layer is not None]


def _seeded(model: Module, loss: Loss, number: int) -> tuple[float, dict[str, Tensor]]:
    torch.manual_seed(number)
    return _gradients(model, lambda: loss(number))


def _gradients(model: Module, loss: Callable[[], Tensor]) -> tuple[float, dict[str, Tensor]]:
    """The loss and copies of all gradients; a weight with two names has one."""
    model.zero_grad()
    result = loss()
    result.backward()
    found = {name: weight.grad.clone() for name, weight in model.named_parameters() if weight.grad is not None}
    model.zero_grad()
    return result.item(), found
