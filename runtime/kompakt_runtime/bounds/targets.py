"""How large an error of a weight's gradient would be as large as the optimizer's step; the target is a share of that.

Optimizers that divide by a root of mean squares step each coordinate by about as much, however small its gradients are. There an
error counts in each coordinate over that root.
"""

import math
from dataclasses import dataclass
from typing import Any, Final

import torch

from kompakt_runtime.bounds.optimizer_state import Kept, group_of, kept, local
from kompakt_runtime.bounds.spread import Spread
from kompakt_runtime.bounds.sums import mean_magnitude
from kompakt_runtime.saved.noise import wide

Tensor = Any
# Mean squares are over few steps at first. A coordinate of which they say less than this share of what its row and its column
# say counts as so much.
LEAST: Final = 0.1
OF_DECAY: Final = 0.1  # of a step that weight decay makes, what counts as the gradient's
TINY: Final = 1e-12  # of the mean: nothing at all, as where an input was always zero


@dataclass(frozen=True)
class StepError:
    """size: root mean square of an error in one step's gradient that moves the weight as far as the step does, a 0-dim tensor.

    harm: what the square of an error in each feature of the operand does to that; None where it is the same for all.
    """

    size: Tensor
    harm: Tensor = None


def error_of_a_step(optimizer: Any, weight: Any, spread: Spread) -> StepError:
    """spread: which coordinates the error is in. Raises UnknownState where the gradient must serve."""
    known = kept(optimizer, weight)
    momentum = _without_decay(known, optimizer, weight)
    if known.spectral:
        return StepError(_spectral(momentum, weight))
    if known.squares is None:
        return StepError(_of_the_step(momentum, known))
    share = 1 / (_at_least(known.squares).sqrt_() + known.eps)
    moved = mean_magnitude(momentum if known.divided else momentum * share)
    squares = share.square_()
    return StepError(moved / spread.mean(squares).sqrt(), spread.by_feature(squares))


def _of_the_step(momentum: Tensor, known: Kept) -> Tensor:
    """Where decay makes nearly all of a step, an error that is far below the step does no harm, however small gradients are."""
    size = mean_magnitude(momentum)
    return size if known.momentum is None else torch.maximum(size, mean_magnitude(known.momentum) * OF_DECAY)


def _at_least(squares: Tensor) -> Tensor:
    everywhere = squares.mean()
    usual: Tensor = everywhere
    if squares.dim() > 1:
        columns = squares.mean(0, keepdim=True)
        usual = squares.flatten(1).mean(1).view(-1, *[1] * (squares.dim() - 1)) * columns / everywhere.clamp(min=TINY)
    return torch.maximum(squares, (usual * LEAST).clamp_(min=everywhere * TINY))


def mean_momentum(optimizer: Any, weight: Any) -> Tensor:
    """Mean |momentum|, as a sum of gradients. Raises UnknownState where the gradient must serve."""
    known = kept(optimizer, weight)
    return mean_magnitude(weight.grad) if known.divided else _of_the_step(_without_decay(known, optimizer, weight), known)


def _without_decay(known: Kept, optimizer: Any, weight: Any) -> Tensor:
    """What gradients of the loss made of the momentum: of what the weight's decay makes an error in them is no share.

    Decay lies along the weight. Of gradients next to nothing does: of many coordinates that is one, and a weight before a norm
    has gradients at right angles to it.
    """
    momentum = local(weight.grad).to(wide(weight.grad)) if known.momentum is None else known.momentum
    if known.divided or not group_of(optimizer, weight).get("weight_decay"):
        return momentum
    along = local(weight).to(momentum)
    share = (momentum * along).sum() / along.square().sum().clamp(min=torch.finfo(along.dtype).tiny)
    return momentum - share * along


def _spectral(momentum: Tensor, weight: Any) -> Tensor:
    """Of an error without a structure, the largest singular value over the momentum's typical one.

    The first is about sigma * (sqrt(m) + sqrt(n)) for m by n elements, the second ||momentum|| / sqrt(min(m, n)).
    """
    rows, columns = len(weight), weight.numel() / len(weight)
    norm = torch.linalg.vector_norm(momentum) * math.sqrt(weight.numel() / max(1, momentum.numel()))
    return norm / math.sqrt(min(rows, columns)) / (math.sqrt(rows) + math.sqrt(columns))
