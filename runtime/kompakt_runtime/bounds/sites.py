"""The parameters whose linear operands may be compressed, by the module that has them, and what was measured at each."""

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from weakref import WeakKeyDictionary, WeakSet, finalize, ref

import torch

from kompakt_runtime.bounds import layer as bounds
from kompakt_runtime.bounds.patience import Patience
from kompakt_runtime.bounds.sigma import Contraction
from kompakt_runtime.bounds.spread import Spread
from kompakt_runtime.bounds.sums import Sums
from kompakt_runtime.codec import by_channel
from kompakt_runtime.codec.features import BoundsWanted, FeatureBounds, feature_bounds, in_storage
from kompakt_runtime.config import Mode
from kompakt_runtime.saved.noise import wide

Tensor = Any
Place = tuple[int, str]  # a module's id and its name for one of its parameters

# Names that wrappers put before the user's own.
WRAPPERS = ("module.", "_orig_mod.")


class MeasuredCall:
    """One call of a layer in a measured step: the gradient at its output is seen when it arrives.

    error: the copy of the input's first examples less these, of a sampled layer.
    """

    def __init__(self, site: "Site", contraction: Contraction) -> None:
        self._site, self._contraction = site, contraction
        self.error: Tensor = None

    @property
    def batched(self) -> bool:
        return self._contraction.batched

    @property
    def sampled(self) -> bool:
        return self._site.sampled

    def see(self, gradients: tuple[Tensor, ...]) -> None:
        error, self.error = self.error, None
        self._site.see_delta(self._contraction, error, gradients)


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

    def see_input(self, x: Tensor, contraction: Contraction) -> None:
        self.idle = False
        self._drop_abandoned()
        self._sums.add_input(x, contraction)

    def watch(self, node: Any, contraction: Contraction) -> MeasuredCall:
        """Asks for the gradients that will arrive at the operation's output, and for its weight's afterwards."""
        watched = MeasuredCall(self, contraction)
        node.register_prehook(watched.see)
        weight = self.weight()
        if not self._grad_hooks and weight is not None:
            after = weight.register_post_accumulate_grad_hook(self._see_gradient)
            self._grad_hooks = (weight.register_hook(self._see_incoming), after)
        return watched

    def see_delta(self, contraction: Contraction, error: Tensor, gradients: tuple[Tensor, ...]) -> None:
        try:
            self._add_delta(contraction, error, gradients)
        except Exception as problem:
            self._give_up(problem)

    def _give_up(self, problem: Exception) -> None:
        """A measurement must not end a backward pass. The step is measured again."""
        self._sums.clear()
        self.patience.failed()
        self._failed(f"ObserveFailed{type(problem).__name__}")

    def _add_delta(self, contraction: Contraction, error: Tensor, gradients: tuple[Tensor, ...]) -> None:
        if self.observing and gradients[0] is not None:
            delta = gradients[0].detach()
            outputs = contraction.outputs(delta)
            self._sums.add_delta(delta, outputs, contraction)
            if error is not None:
                self._see_moved(contraction, error, delta[: len(error)] if contraction.batched else delta, outputs)

    def _see_moved(self, contraction: Contraction, error: Tensor, delta: Tensor, outputs: float) -> None:
        try:
            moved = contraction.gradient(error, delta)
        except Exception:  # a measurement must not end a backward pass; without it the figure is just not there
            self.sampled = False
            return
        if moved is not None:
            self._sums.add_moved(moved, delta, outputs)

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


class Sites:
    """Names all modules below each outermost one once, and finds a parameter's site."""

    def __init__(self, mode_of: Callable[[str, Any], Mode], failed: Callable[[str], None]) -> None:
        self.mode_of, self._failed = mode_of, failed
        self._names: WeakKeyDictionary[Any, str] = WeakKeyDictionary()
        self._sites: dict[Place, Site] = {}
        # By a parameter's id: it, the module that has it, and by what name.
        self._owners: dict[int, tuple[ref[Any], ref[Any], str]] = {}
        # Modules whose parameters were shards before their forward pass: in it FSDP2 shows the whole ones.
        self._sharded: WeakSet[Any] = WeakSet()
        self.places = itertools.count()
        self._passes = 0
        # Called when layers were measured for so long that no step is waited for any more.
        self.settle: Callable[[], None] = lambda: None
        # Called with each new site.
        self.made: Callable[[Site], None] = lambda _: None

    def __iter__(self) -> Iterator[Site]:
        return iter(list(self._sites.values()))

    def name_all(self, root: Any) -> None:
        """As an outermost forward pass begins. Modules that have a name keep it: a part that runs alone is the same layer."""
        self._passes += 1
        if root not in self._names:
            for name, module in root.named_modules():
                self._names.setdefault(module, plain_name(name))
                if any(hasattr(parameter, "to_local") for parameter in module._parameters.values()):
                    self._sharded.add(module)

    @property
    def named(self) -> int:
        return len(self._names)

    def name(self, module: Any) -> str:
        """The module's name below the outermost module it was first seen in; its class for that one itself."""
        return self._names.get(module) or type(module).__name__

    def of(self, module: Any, slot: str = "weight") -> Site | None:
        """The site of a module's own parameter of that name; None where it is not trained."""
        weight = module._parameters.get(slot)
        if weight is None or not (weight.requires_grad and weight.is_leaf and weight.is_floating_point()):
            return None
        site = self._sites.get((id(module), slot))
        if site is None or site.weight() is not weight:
            site = self._make(module, slot, weight)
        site.passed(self._passes)
        if site.overdue:
            self.settle()
        return site

    def of_parameter(self, parameter: Any, running: Any, outermost: Any) -> Site | None:
        """The site of a parameter that an operation in `running` used; None where no module below `outermost` has it."""
        found = self._owner(parameter, running, outermost)
        return None if found is None else self.of(*found)

    def _owner(self, parameter: Any, running: Any, outermost: Any) -> tuple[Any, str] | None:
        """The module that runs comes first: a parameter may be tied to several."""
        if slot := _slot(running, parameter):
            return running, slot
        known, owner, slot = self._owners.get(id(parameter), (_gone, _gone, ""))
        module = owner()
        if known() is parameter and module is not None and module._parameters.get(slot) is parameter:
            return module, slot
        for module in itertools.chain(running.modules(), outermost.modules()):
            if slot := _slot(module, parameter):
                self._owners[id(parameter)] = ref(parameter), ref(module), slot
                return module, slot
        return None

    @property
    def known(self) -> bool:
        """Was any found so far?"""
        return bool(self._sites)

    def tolerances(self) -> list[tuple[int, float]]:
        """Places of the measured layers and what error of the gradients at their outputs they bear."""
        return [(site.place, site.tolerance) for site in list(self._sites.values()) if site.tolerance]

    def observing(self) -> bool:
        """Is the next step measured, at any layer?"""
        return any(site.observing and not site.idle for site in self)

    def _make(self, module: Any, slot: str, weight: Any) -> Site:
        name = self.name(module) if slot == "weight" else f"{self.name(module)}.{slot}"
        site = Site(name, self.mode_of(self.name(module), module), module, weight, self._failed)
        site.place = next(self.places)
        site.sharded = module in self._sharded
        place = (id(module), slot)
        if place not in self._sites:
            finalize(module, self._sites.pop, place, None).atexit = False
        self._sites[place] = site
        self.made(site)
        return site

    def of_weights(self, weights: Iterable[Any]) -> list[tuple[Any, Site]]:
        """The sites whose weight is among these, each with the optimizer's own tensor for it.

        FSDP2 gives a module its whole weight only while it runs; between, the module has the shard that the optimizer steps.
        """
        places = {id(weight): place for place, weight in enumerate(weights)}
        found = []
        for (_, slot), site in list(self._sites.items()):
            module = site.module()
            owner = module._parameters.get(slot) if module is not None else None
            site.sharded = owner is not site.weight()
            if id(owner) in places:
                found.append((owner, site))
        return sorted(found, key=lambda pair: places[id(pair[0])])


def _slot(module: Any, parameter: Any) -> str:
    """The module's name for this parameter; "" where it is not its own."""
    return next((slot for slot, own in module._parameters.items() if own is parameter), "")


def _gone() -> None:
    """A reference to nothing."""


def plain_name(name: str) -> str:
    """The name as the user's own model knows it, without what wrappers put before it."""
    while name.startswith(WRAPPERS):
        name = name.split(".", 1)[1]
    return name


def mean_magnitude(t: Tensor) -> Tensor:
    """Mean |t| as a 0-dim tensor; of a sharded tensor this rank's part, for nobody must wait for other ranks here."""
    if hasattr(t, "to_local"):
        t = t.detach().to_local()
    return torch.linalg.vector_norm(t.detach(), 1, dtype=wide(t)) / t.numel()
