"""How large an error a layer's input may have, from what that error does to the layer's weight gradient. Pure.

The weight gradient of a linear operation is a sum of products delta * x. An error that is uniform in [-eb, eb] on the
nonzero elements of x and zero on the others gives each weight gradient the variance

    eb² / 3 * sum(R * delta²)        (R: share of nonzero elements among the x that meet this delta; the sum runs over batch and
                                      places of one output channel)

so the bound that reaches a wanted standard deviation sigma is

    eb = sqrt(3) * sigma / sqrt(sum(R * delta²)).

R belongs into the sum: behind an image's empty background a LayerNorm divides by nothing but its eps, and delta is a million
times as large just where every x is zero.

Form and target (sigma = share of mean |momentum|; of what else optimizers step by, `targets.py` tells) follow COMET (Jin et al.,
arXiv 2111.09562); COMET fits an empirical coefficient to mean |loss gradient| instead of the sum of squares, which this makes
unnecessary.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class LayerObservation:
    """One layer, from the forward and backward passes of one optimizer step.

    gradient_before: mean |weight gradient| after the last backward pass, still times the loss scale;
    gradient: mean |.| as the optimizer saw it; momentum: the error of that which would be as large as the step (for SGD the mean
    |momentum|); where nothing is known of it the same number twice;
    delta_squares: sum(R * delta²) of all passes, averaged over output channels, times the loss scale squared;
    magnitude: mean |x| over the inputs' nonzero elements; moved: root mean square of what the
    copies' errors did to the weight gradient, still times the loss scale, 0 where it was not measured; size: root mean square
    of the nonzero elements.
    """

    gradient_before: float
    gradient: float
    momentum: float
    delta_squares: float
    magnitude: float
    moved: float = 0.0
    size: float = 0.0


def best_bound(seen: LayerObservation, target: float) -> float | None:
    """The bound in units of the layer's input with which this step would have met the target; None where figures are zero or
    not finite and say nothing.

    sigma is built from ratios, target * (momentum / gradient) * gradient_before: loss scale, gradient clipping and
    learning rate cancel.
    """
    figures = (seen.gradient_before, seen.gradient, seen.momentum, seen.delta_squares, seen.magnitude)
    if not all(0 < figure < math.inf for figure in figures):
        return None
    sigma = target * seen.momentum / seen.gradient * seen.gradient_before
    bound = math.sqrt(3) * sigma / math.sqrt(seen.delta_squares)
    return bound if 0 < bound < math.inf else None


# A measured step has lost two thirds of its weight after so many optimizer steps.
SPAN = 128
# What was saved is dropped if its bound is so many times as wide as the next measured step allows.
DOUBT = 2.0


class Average:
    """The bound that meets the target on average over a layer's steps; one measured step says little about the next.

    Where most examples are learnt already, a batch with one that is not has gradients ten times as large as the others. Right
    after it the momentum is large and delta small, and the bound that suits that step is too wide for all that follow.
    A step's error has the variance (target * |momentum| * bound / best_bound)², and variances of steps add up in the momentum:
    their mean is the target's where 1 / bound² is the mean of 1 / best_bound².
    """

    def __init__(self) -> None:
        self._last = 0
        self._steps = self._squares = 0.0
        self._doubted = False

    def state(self) -> list[Any]:
        """Numbers from which `of` makes it again."""
        return [self._last, self._steps, self._squares]

    @staticmethod
    def of(state: Sequence[Any]) -> "Average":
        """As it was. Whether the training is the same is seen at its first measured step."""
        average = Average()
        average._last, average._steps, average._squares = state
        average._doubted = True
        return average

    def after(self, best: float | None, steps: int) -> float | None:
        """With what was measured after `steps` optimizer steps; it speaks for all those since the last that was. None without."""
        square = math.inf if best is None else 1 / best * (1 / best)
        if square == math.inf:
            return None
        since = steps - self._last
        if self._doubted and square * self._steps > DOUBT**2 * self._squares:
            # Another training, or one that began anew without its checkpoint.
            self._steps = self._squares = 0.0
        self._doubted = False
        fading = math.exp(-since / SPAN)
        self._steps = self._steps * fading + since
        self._squares = self._squares * fading + since * square
        self._last = steps
        return math.sqrt(self._steps / self._squares)


def error_bound(average: float | None, seen: LayerObservation) -> float | None:
    """The bound to use: never wider than the mean magnitude, beyond which only signs would be left."""
    return None if average is None else min(average, seen.magnitude)


def sigma_ratio(seen: LayerObservation, bound: float) -> float | None:
    """Measured standard deviation of the weight gradient's error over the one that the model above predicts for `bound`.

    None where nothing was measured, or figures are not finite.
    """
    predicted = bound * math.sqrt(max(0.0, seen.delta_squares) / 3)
    if not (0 < predicted < math.inf and 0 < seen.moved < math.inf):
        return None
    return seen.moved / predicted


def tolerance(bound: float | None, size: float) -> float | None:
    """The error of the gradient at the layer's output, as a share of that gradient's root mean square, that moves the weight
    gradient as much as `bound` lets the input move it; None without a bound or where the input's size says nothing.

    The weight gradient sums products delta * x, so errors of equal relative size and without a common direction do the same in
    either factor: sigma = share * rms(x) * sqrt(sum(delta²)).
    """
    return bound / (math.sqrt(3) * size) if bound is not None and 0 < size < math.inf else None


# With nonlinear inputs packed too, the errors they bring and those of the linear inputs each have half of the variance.
HALF = math.sqrt(0.5)
# A bound grows by so much at most from one measured step to the next. Errors that are allowed are percents of what they are in,
# so what was measured holds for that; first bounds are often a hundred times tighter than those that follow.
GROWTH = 16.0


def nonlinear_bound(used: float, moved: float, widest: float) -> float | None:
    """The next bound of a nonlinear operation's inputs; None where figures say nothing.

    moved: the largest of the errors that noise of the size of `used` made, each over what was allowed; 0 where it was lost in
    the rounding of a narrow type; widest: what the bound never exceeds.
    """
    if not (0 <= moved < math.inf and 0 < widest < math.inf):
        return None
    return min(used / max(moved, 1 / GROWTH), widest)


# Before a layer was measured once its bound aims at this share of the target.
UNMEASURED = 0.5


def first_bound(deviation: float, target: float) -> float | None:
    """The bound for one input of a layer of which no step was measured yet, from the input's standard deviation alone.

    A gradient whose parts do not agree at all is the smallest there is: a sum of independent delta * x of standard deviation
    sqrt(sum(delta²)) * rms(x), whose mean magnitude is sqrt(2 / pi) times that. Put in place of the momentum above, sum(delta²)
    cancels; the deviation instead of the root mean square and R = 1 only make the bound tighter, and so does UNMEASURED. What
    came out is known after the step: `aimed_at`. None where the deviation is zero or not finite.
    """
    if not 0 < deviation < math.inf:
        return None
    return UNMEASURED * target * math.sqrt(3) * math.sqrt(2 / math.pi) * deviation


def aimed_at(seen: LayerObservation, target: float, bound: float) -> float | None:
    """The share of its target that a layer had with `bound`, as the model above says; None where figures say nothing."""
    best = best_bound(seen, target)
    return None if best is None else bound / best


def first_nonlinear_bound(deviation: float, target: float, operations: int) -> float | None:
    """The same for inputs of a nonlinear operation, if there are at most so many.

    Errors of relative size r in what a norm reads leave at most about 2 r in the gradient below (its terms are products of the
    error and of the gradient with normalised values); in what GELU and its like read, absolute errors e leave at most about
    1.6 e, by their second derivatives over their first. Both are checked in that first step.
    """
    plain = first_bound(deviation, target)
    return None if plain is None else plain * min(1.0, 1 / deviation) / 2 / math.sqrt(max(1, operations))


# A layer whose measured sigma is more than this factor above its target is tightened, and switched off the second time.
TOLERANCE = 2.0

PERIOD = 32


def observed(steps: int) -> bool:
    """Is the next optimizer step, after `steps` of them, one to measure? Often while training changes fast, then every 32.

    The same steps on every rank: the first, the second, the third, the fifth, the ninth and so on.
    """
    return steps & (steps - 1) == 0 or steps % PERIOD == 0
