"""One layer's input as a place where tensors are packed: its bound, and what was measured of it."""

from collections.abc import Callable
from typing import Any
from weakref import ref

import torch

from kompakt_runtime.bounds import layer as bounds
from kompakt_runtime.bounds.patience import Patience
from kompakt_runtime.bounds.sigma import Contraction, Met
from kompakt_runtime.bounds.spread import Spread
from kompakt_runtime.bounds.sums import Sums, mean_magnitude
from kompakt_runtime.codec import by_channel
from kompakt_runtime.codec.features import BoundsWanted, FeatureBounds, feature_bounds, in_storage
from kompakt_runtime.config import Mode

Tensor = Any


class MeasuredCall:
    """One call of a layer in a measured step: the gradient at its output is seen when it arrives.

    error: the copy of the input's first examples less these, of a sampled layer.
    """

    def __init__(self, site: "Site", met: Met) -> None:
        self._site, self._met = site, met
        self.error: Tensor = None

    @property
    def batched(self) -> bool:
        return self._met.contraction.batched

    @property
    def sampled(self) -> bool:
        return self._site.sampled

    def see(self, gradients: tuple[Tensor, ...]) -> None:
        error, self.error = self.error, None
        self._site.see_delta(self._met, error, gradients)


class Site:
    """One layer: `bound` is the error bound in force (None: not yet)."""

    def __init__(self, name: str, mode: Mode, module: Any, weight: Any, failed: Callable[[str], None]) -> None:
        """failed: counts a reason why nothing was measured in some backward pass."""
        self._failed = failed
        self.name = name
        self.mode = mode
        self.module = ref(module)
        self.weight = ref(weight)
        # Does the optimizer know another tensor than the forward pass reads, which exists only meanwhile (FSDP2)?
        self.sharded = False
        self.place = 0  # in the forward pass, among these and nonlinear operations
        self.tolerance = 0.0  # bounds.tolerance as last measured, 0 before
        self.bound: float | None = None
        self.average = bounds.Average()
        # The widest bound that was used before, and what share of its target that was.
        self.unmeasured = 0.0
        self.aimed_at: float | None = None
        self.steps = 0
        self.observing = bounds.observed(0) and mode == "ErrorBounded"
        self.idle = False  # no input came in the step before this one
        self.patience = Patience()
        # Whether this layer is the one whose sigma is measured in a measured step, how often it was, what came out the last time,
        # as a multiple of the target, and what its bound is divided by because of it.
        self.sampled = False
        self.turns = 0
        self.sigma: float | None = None
        self.divisor = 1.0
        self._has_momentum = True  # as far as is known
        self.harm: Tensor = None  # of the optimizer's last measured step, as in targets.StepError
        self.features: FeatureBounds | None = None
        self._grad_hooks: tuple[Any, ...] = ()
        self._sums = Sums()

    def _drop_abandoned(self) -> None:
        """Before a forward pass: forgets backward passes whose gradients the loop threw away without an optimizer step.

        Then the weight has no gradient, or one of zeros; the latter is looked at where it lies, so nobody waits for it.
        """
        if self.sharded or not self._sums.backward:
            # The gradient is moved into a shard at once. Sums that should have been dropped only make the bound tighter.
            return None
        weight = self.weight()
        if weight is None or weight.grad is None:
            return self._sums.clear()
        return self._sums.keep_backward(torch.count_nonzero(weight.grad) > 0)

    def bound_for(self, x: Tensor, target: float) -> float | None:
        """The bound in force; before the first measured step is over one from `x` itself, which is read back for it."""
        if self.bound is not None:
            return self.bound
        bound = bounds.first_bound(float(torch.std(x, correction=0)), target)
        self.unmeasured = max(self.unmeasured, bound or 0.0)
        return bound

    def watch(self, node: Any, x: Tensor, contraction: Contraction) -> MeasuredCall:
        """As `measure`, and asks the node for the gradients at the operation's output."""
        watched = MeasuredCall(self, Met.of(contraction, x))
        node.register_prehook(watched.see)
        self._add(x, contraction)
        return watched

    def measure(self, x: Tensor, contraction: Contraction) -> MeasuredCall:
        """Adds up an operand, and asks for the gradients of its weight. The gradients at its output are told by the caller."""
        watched = MeasuredCall(self, Met.of(contraction, x))
        self._add(x, contraction)
        return watched

    def _add(self, x: Tensor, contraction: Contraction) -> None:
        weight = self.weight()
        if not self._grad_hooks and weight is not None:
            after = weight.register_post_accumulate_grad_hook(self._see_gradient)
            self._grad_hooks = (weight.register_hook(self._see_incoming), after)
        self.idle = False
        self._drop_abandoned()
        self._sums.add_input(x, contraction)

    def see_delta(self, met: Met, error: Tensor, gradients: tuple[Tensor, ...]) -> None:
        try:
            self._add_delta(met, error, gradients)
        except Exception as problem:
            self._give_up(problem)

    def _give_up(self, problem: Exception) -> None:
        """A measurement must not end a backward pass. The step is measured again."""
        self._sums.clear()
        self.patience.failed()
        self._failed(f"ObserveFailed{type(problem).__name__}")

    def _add_delta(self, met: Met, error: Tensor, gradients: tuple[Tensor, ...]) -> None:
        if self.observing and gradients[0] is not None:
            delta = gradients[0].detach()
            outputs = met.contraction.outputs(delta)
            self._sums.add_delta(delta, outputs, met)
            if error is not None:
                first = delta[: len(error)] if met.contraction.batched else delta
                self._see_moved(met.first(len(error)), error, first, outputs)

    def _see_moved(self, met: Met, error: Tensor, delta: Tensor, outputs: float) -> None:
        try:
            moved = met.contraction.gradient(error, delta)
        except Exception:  # a measurement must not end a backward pass; without it the figure is just not there
            self.sampled = False
            return
        if moved is not None:
            self._sums.add_moved(moved, delta, outputs, met)

    def _see_incoming(self, gradient: Tensor) -> None:
        """Before it is accumulated: an optimizer may step in a hook that runs before ours, right after that.

        Where there is a gradient already, what the optimizer sees is the only sum.
        """
        try:
            weight = self.weight()
            if self.observing and weight is not None:
                self._sums.gradient = mean_magnitude(gradient) if weight.grad is None else None
        except Exception:  # the hook after it looks again, and tells
            self._sums.gradient = None

    def _see_gradient(self, weight: Tensor) -> None:
        try:
            if self.observing and weight.grad is not None and self._sums.gradient is None:
                self._sums.gradient = mean_magnitude(weight.grad)
        except Exception as problem:
            self._give_up(problem)

    @property
    def spread(self) -> Spread:
        """Of the copies' errors over the weight gradient's coordinates, as seen in this step."""
        return self._sums.by_channel.spread

    def figures(self, momentum: Tensor = None, gradient: Tensor = None) -> Tensor | None:
        """The numbers of a bounds.Observation as one tensor; None if a pass is missing. As Sums.figures."""
        return self._sums.figures(momentum, gradient)

    def without_momentum(self) -> None:
        """What the optimizer keeps cannot be read: the gradient serves, and bounds are tighter. Counted once a layer."""
        self.harm = None
        if self._has_momentum:
            self._has_momentum = False
            self._failed("NoMomentum")

    def judge(self, ratio: float | None) -> None:
        """`ratio`: measured sigma over the model's. Too large: the bound is tightened; still too large: nothing is lossy here."""
        if ratio is None:
            return
        self.sigma = ratio / self.divisor
        if self.sigma > bounds.TOLERANCE:
            self.mode = self.mode if self.divisor == 1 else "Lossless"
            self.divisor = max(self.divisor, ratio)

    def renew(self, bound: float | None) -> None:
        """The measured step is over; without a bound the old one stays and the next step is measured."""
        if bound is not None:
            self.bound = bound / self.divisor
            self.features = self._feature_bounds()
            self.patience.met()
        self.finish(again=bound is None)

    def _feature_bounds(self) -> FeatureBounds | None:
        spread = self.spread
        if self.harm is None or spread.columns is None or len(spread.columns) != len(self.harm):
            return None
        return feature_bounds(spread.outputs, self.harm, spread.columns)

    @property
    def spreading(self) -> float:
        """Root mean square of the features' bounds over the one for all, if that is more."""
        return max(1.0, self.features.error) if self.features is not None else 1.0

    def asks(self, x: Tensor, bound: float, contraction: Contraction | None) -> BoundsWanted:
        """What this operand of the parameter bears."""
        features = self.features
        if self.bound is None or features is None or contraction is None or features.outputs != contraction.outputs_at:
            return BoundsWanted(bound)
        channels, widest = in_storage(x, contraction.along % x.dim(), features.depths), bound * features.widest
        return BoundsWanted(bound, widest, channels) if channels is not None and by_channel(x, widest) else BoundsWanted(bound)

    def passed(self, number: int) -> None:
        """The outermost forward pass of this number reaches the layer."""
        if self.patience.passed(number) and self.patience.alone and not self.observing:
            self.stepped(alone=True)
            self.finish(again=False)

    @property
    def overdue(self) -> bool:
        """Measured for so long that no step of its optimizer is waited for any more."""
        return self.observing and self.patience.over

    def stepped(self, alone: bool = False) -> None:
        """One optimizer step is over; `alone`: as far as anybody can tell."""
        self.steps += 1
        self.patience.alone = alone

    def finish(self, again: bool) -> None:
        """Drops what was seen; `again`: measure the next step too, while there is patience."""
        if again and self._sums.seen:
            self.patience.failed()
        self.idle = not self._sums.seen
        again = self.patience.again(again)
        self._sums.clear()
        for hook in self._grad_hooks:
            hook.remove()
        self._grad_hooks = ()
        self.observing = (again or bounds.observed(self.steps)) and self.mode == "ErrorBounded"
