"""What passes through a layer in one measured step, as sums that stay on its device until the optimizer has stepped."""

from typing import Any

import torch

from kompakt_runtime.bounds.sigma import Contraction, Met
from kompakt_runtime.bounds.spread import ByChannel
from kompakt_runtime.saved.noise import absolute_sum, wide

Tensor = Any


class Sums:
    """0-dim tensors, None where nothing was added; together they become the numbers of a bounds.Observation."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self._delta_squares: Tensor = None  # of those that meet a nonzero element
        self.gradient: Tensor = None  # mean |gradient| of the weight, after the last backward pass
        self._shares: Tensor = None  # as in sigma.Met
        self._places: Tensor = None
        self._nonzero: Tensor = None
        self._magnitude: Tensor = None
        self._squares: Tensor = None
        self._moved: Tensor = None
        self._moved_by: Tensor = None  # sum(delta²) as above, of the examples whose error was kept
        self.by_channel = ByChannel()

    @property
    def seen(self) -> bool:
        """Did an input come?"""
        return self._nonzero is not None

    @property
    def backward(self) -> bool:
        """Did a backward pass reach the layer?"""
        return self._delta_squares is not None

    def keep_backward(self, kept: Tensor) -> None:
        """Drops what backward passes added unless `kept`, which is looked at where it lies."""
        self._delta_squares, self._shares, self._places = (
            torch.where(kept, sums, torch.zeros_like(sums)) for sums in (self._delta_squares, self._shares, self._places)
        )
        self.by_channel.keep_backward(kept)

    def add_input(self, x: Tensor, contraction: Contraction) -> None:
        """The nonzero elements and the magnitude of one input."""
        self._nonzero = _plus(self._nonzero, torch.count_nonzero(x))
        self._magnitude = _plus(self._magnitude, absolute_sum(x))
        self._squares = _plus(self._squares, torch.linalg.vector_norm(x, dtype=wide(x)).square())
        self.by_channel.add_input(x, contraction)

    def add_delta(self, delta: Tensor, outputs: float, met: Met) -> None:
        """One gradient at the layer's output. outputs: channels, over which its squares are averaged."""
        self.by_channel.add_delta(delta, met.contraction)
        self._delta_squares = _plus(self._delta_squares, _mean_square(delta, outputs, met))
        self._shares, self._places = _plus(self._shares, met.shares), _plus(self._places, met.count)

    def add_moved(self, moved: Tensor, delta: Tensor, outputs: float, met: Met) -> None:
        """What the errors of some examples do to the weight's gradient; `delta` and `met` are theirs."""
        self._moved = _plus(self._moved, moved)
        self._moved_by = _plus(self._moved_by, _mean_square(delta, outputs, met))

    def figures(self, momentum: Tensor, gradient: Tensor) -> Tensor | None:
        """The numbers of a bounds.Observation as one tensor; None if a pass is missing.

        Without a momentum the gradient serves; of the gradients that an optimizer saw and that the last backward pass left, one
        serves for both.
        """
        before = gradient if self.gradient is None else self.gradient
        if self._delta_squares is None or before is None or self._nonzero is None:
            return None
        gradient = before if gradient is None else gradient
        momentum = gradient if momentum is None else momentum
        mean = self._magnitude / self._nonzero.clamp(min=1)
        moved = mean.new_zeros(()) if self._moved is None else self._moved_by_all()
        size = (self._squares / self._nonzero.clamp(min=1)).sqrt()
        numbers = (before, gradient, momentum, self._weighed(), mean, moved, size)
        return torch.stack([number.double() for number in numbers])

    def _weighed(self) -> Tensor:
        """bounds.LayerObservation.delta_squares: over a whole step, so that micro-batches give what one big batch gives."""
        return self._delta_squares * self._shares / self._places.clamp(min=1)

    def _moved_by_all(self) -> Tensor:
        """Root mean square of what all examples' errors would have done, from those of the first ones."""
        return self._moved.double().square().mean().sqrt() * (self._delta_squares / self._moved_by).sqrt()


def _mean_square(delta: Tensor, outputs: float, met: Met) -> Tensor:
    """sum(delta²) over the places that meet something, averaged over output channels."""
    some = met.some()
    if some is None:
        return torch.linalg.vector_norm(delta, dtype=wide(delta)).square() / outputs
    sizes = torch.linalg.vector_norm(delta, dim=met.contraction.along, keepdim=True, dtype=wide(delta))
    return sizes.square_().mul_(some).sum() / outputs


def _plus(total: Tensor, more: Tensor) -> Tensor:
    return more if total is None else total + more


def mean_magnitude(t: Tensor) -> Tensor:
    """Mean |t| as a 0-dim tensor; of a sharded tensor this rank's part, for nobody must wait for other ranks here."""
    if hasattr(t, "to_local"):
        t = t.detach().to_local()
    return torch.linalg.vector_norm(t.detach(), 1, dtype=wide(t)) / t.numel()
