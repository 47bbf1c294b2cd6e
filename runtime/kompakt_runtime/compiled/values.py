"""What becomes of values that compiled graphs hand over: packed by the bounds of the parameters whose gradients they make."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from kompakt_runtime.bounds.nonlinear import Operation
from kompakt_runtime.bounds.passed_on import PassedOn
from kompakt_runtime.bounds.site import Site
from kompakt_runtime.codec import decode, encode, pieces
from kompakt_runtime.codec.features import BoundsWanted, agreed
from kompakt_runtime.codec.format import LOSSY
from kompakt_runtime.codec.select import PACKING, UNPACKING, encoder, working_bytes
from kompakt_runtime.compiled.kept_value import KeptValue
from kompakt_runtime.compiled.measured import ReadOnce, contraction_of, failing, matrix
from kompakt_runtime.compiled.operators import LATER, TICKETS
from kompakt_runtime.compiled.parts import SessionParts
from kompakt_runtime.compiled.places import ReadPlace
from kompakt_runtime.compiled.places import of_text as of_place
from kompakt_runtime.compiled.running import Running
from kompakt_runtime.compiled.weight_gradients import of_text
from kompakt_runtime.config import Mode
from kompakt_runtime.figures.counted import COMPILED, SWITCHED_OFF, WITHIN_BUDGET
from kompakt_runtime.saved.compare import sample
from kompakt_runtime.saved.noise import Noise
from kompakt_runtime.scope.exclusions import excluded, kept_out
from kompakt_runtime.uses.policy import KeepPlain, Lossy, TensorFacts, Use, decide, strictest

Tensor = Any
NO_SITE = "CompiledNoParameter"  # of what is read for a gradient whose parameter no module has


class CompiledValues:
    """A session's keeper (operators.ValueKeeper)."""

    def __init__(
        self,
        parts: SessionParts,
        running: Callable[[Any, bool], Running],
        parameter: Callable[[Any, Any], Any],
    ) -> None:
        """running: where code runs that uses what a view is of, told whether this is its first value; parameter: what a view is
        of, in the outermost module.
        """
        self._minimum, self._verify = parts.config.min_tensor_bytes, parts.config.verify
        self._figures, self._sites, self._account, self._budget = parts.figures, parts.sites, parts.account, parts.budget
        self._target, self._running, self._parameter, self.owns = parts.target, running, parameter, parts.owns
        self._operations, self._noise = parts.operations, Noise()
        self.given = 0  # values, so far
        self._kept_out: WeakKeyDictionary[Any, WeakSet[Any]] = WeakKeyDictionary()

    def keep(self, x: Tensor, views: Sequence[Tensor], how: str, beside: int) -> KeptValue:
        return self._guarded(KeptValue(self, x, of_text(how), None if beside == LATER else beside), x, views, self._keep)

    def keep_read(self, x: Tensor, views: Sequence[Tensor], place: str, beside: int) -> KeptValue:
        known = of_place(place)
        keep = partial(self._keep_read, place=known, leaves=views[known.known :], beside=views[known.linear : known.known])
        return self._guarded(KeptValue(self, x, (), None if beside == LATER else beside), x, views[: known.linear], keep)

    def _guarded(self, kept: KeptValue, x: Tensor, views: Sequence[Tensor], keep: Callable[..., None]) -> KeptValue:
        """What fails stays as it is, and is counted."""
        self.given += 1
        try:
            with torch.no_grad():
                here = self._running(views[0], kept.beside is not None)
                if (met := self._at(here, kept, x, views)) is not None:
                    keep(kept, _dense(x.detach()), here, *met)
        except Exception as error:
            self._figures.count_raw(f"PackFailed{type(error).__name__}")
            kept.watching, kept.once = [], None
            kept.stay(x, "CompiledFailed")
        self._figures.holding.weigh(kept, working_bytes(x, kept.nbytes, PACKING) if kept.bounded else 0)
        return kept

    def _at(self, here: Running, kept: KeptValue, x: Tensor, views: Sequence[Tensor]) -> tuple[list[Site], list[Tensor]] | None:
        """The sites and the parameters that the views are of; None where the value stays."""
        if reason := here.reason or ("ModeNone" if kept_out() else ""):
            kept.counted = reason == SWITCHED_OFF
            kept.stay(x, reason)
            return None
        kept.beside = None if here.hooked else kept.beside
        weights = [weight for view in views if (weight := self._parameter(view, here.outermost)) is not None]
        found = (self._sites.of_parameter(weight, here.module, here.outermost) for weight in weights)
        sites = [site for site in found if site is not None]
        kept.layer = sites[0].name if len(sites) == len(views) else ""
        if kept.layer and not any(site.module() in self._excluded(here.outermost) for site in sites):
            return sites, weights
        kept.stay(x, "ModeNone" if kept.layer else NO_SITE)
        return None

    def _keep(self, kept: KeptValue, x: Tensor, _: Running, sites: list[Site], weights: list[Tensor]) -> None:
        mode = strictest(*(site.mode for site in sites))
        pairs = enumerate(zip(sites, weights, strict=True))
        asked = [self._asked(kept, place, site, weight, x, mode) for place, (site, weight) in pairs]
        bounds = [one.bound for one in asked if one is not None]
        bound = min(bounds) if len(bounds) == len(asked) else None
        verdict = decide(Use.NONLINEAR, TensorFacts(kept.nbytes, x.dtype in LOSSY), mode, self._minimum, bound)
        if isinstance(verdict, Lossy):
            return self._within(kept, x, verdict.bound, agreed([one for one in asked if one is not None]), sites[0])
        return kept.stay(x, verdict.reason if isinstance(verdict, KeepPlain) else "ValuesNeeded")

    def _keep_read(
        self, kept: KeptValue, x: Tensor, here: Running, sites: list[Site], weights: list[Tensor], place: ReadPlace,
        leaves: Sequence[Tensor], beside: Sequence[Tensor],
    ) -> None:  # fmt: skip
        if self._operations is None or (place.inputs and here.exact):
            return kept.stay(x, "ValuesNeeded")
        learnt = [self._parameter(one, here.outermost) for one in leaves]
        owners = [self._sites.owner(one, here.module, here.outermost) for one in learnt if one is not None]
        modules = [owner[0] for owner in owners if owner is not None]
        if len(modules) < len(leaves):
            return kept.stay(x, NO_SITE)
        if any(module in self._excluded(here.outermost) for module in modules):
            return kept.stay(x, "ModeNone")
        modes = [self._sites.mode_of(self._sites.name(module), module) for module in modules]
        mode, facts = strictest(*(site.mode for site in sites), *modes), TensorFacts(kept.nbytes, x.dtype in LOSSY)
        verdict = decide(Use.NONLINEAR, facts, mode, self._minimum, 1.0)  # of a bound that is to be found
        if not isinstance(verdict, Lossy):
            return kept.stay(x, verdict.reason if isinstance(verdict, KeepPlain) else "ValuesNeeded")
        operation = self._operations.compiled(sites[0], place.kind, place.number)
        # Layers whose operands only the backward graph has come in there, so these are not known to be in use before.
        used = any(site.observing for site in sites)
        operation.observing = used or self._sites.observing() or self._operations.ends.observing
        kept.layer = operation.name
        bound = operation.bound_for(x, self._target(), self._operations.expected)
        if bound is None:
            return kept.stay(x, "NoBound")
        self._within(kept, x, bound, None, operation)
        if operation.observing and kept.packed is not None:
            operation.see_input(x, bound)
            operands, given = ([(sites[i], weights[i]) for i in every] for every in (place.operands, place.given))
            passed_on, sources = self._passed_on(sites, beside, here, place), [at for at, _ in place.sources]
            kept.once = ReadOnce(operation, bound, learnt, operands, given, passed_on, sources)
        return None

    def _passed_on(self, sites: list[Site], beside: Sequence[Tensor], here: Running, place: ReadPlace) -> PassedOn | None:
        """Between which layers errors go; None where one has no site. beside: parameters of those after the sites."""
        weights = [self._parameter(view, here.outermost) for view in beside]
        others = [None if one is None else self._sites.of_parameter(one, here.module, here.outermost) for one in weights]
        known = [one for one in (*sites, *others) if one is not None]
        if len(known) < place.known:
            return None
        return PassedOn(
            [[known[i] for i in every] for every in place.targets], [[known[i] for i in every] for _, every in place.sources]
        )

    def _excluded(self, outermost: Any) -> WeakSet[Any]:
        """Modules that `exclude` was asked to keep out, and those in them: what it does when they run is not in compiled code."""
        if outermost not in self._kept_out:
            apart = [module for module in outermost.modules() if excluded(module)]
            self._kept_out[outermost] = WeakSet(inner for module in apart for inner in module.modules())
        return self._kept_out[outermost]

    def _asked(self, kept: KeptValue, place: int, site: Site, weight: Tensor, x: Tensor, mode: Mode) -> BoundsWanted | None:
        """What this parameter's gradient bears; in measured steps it is seen."""
        read = kept.reads[place]
        operand = matrix(read.place, x)
        operation = contraction_of(read.place, operand, weight, read.arguments, read.outputs_at)
        if site.observing and mode != "None":
            kept.watching.append((place, site.measure(operand, operation)))
        bound = site.bound_for(operand, self._target()) if mode == "ErrorBounded" and x.dtype in LOSSY else None
        return None if bound is None else site.asks(operand, bound, operation)

    def _within(self, kept: KeptValue, x: Tensor, bound: float, together: BoundsWanted | None, site: Site | Operation) -> None:
        """Packed, unless the budget of memory suffices without."""
        self._budget.entered(x.device)
        if self._budget.leaves(site):
            return kept.stay(x, WITHIN_BUDGET)
        with self._budget.packing(kept, site.name):
            return self._pack(kept, x, bound, together, site)

    def _pack(self, kept: KeptValue, x: Tensor, bound: float, together: BoundsWanted | None, site: Site | Operation) -> None:
        if reason := encoder(x.device, x.dtype).reason:
            return kept.stay(x, reason)
        channels = None if together is None else together.channels
        widest = together.widest if together is not None and channels is not None else bound
        packed = encode(x, widest, channels=channels)
        if packed.raw:
            return kept.stay(x, "NoGain")
        kept.packed, kept.bound = packed, widest
        row = self._figures.layer(kept.layer)
        row.bound = max(row.bound or 0.0, bound)
        if site.observing:
            self._account.compare(kept, pieces(packed), _flat(x))  # type: ignore[arg-type]
        if self._verify:
            kept.original = x.clone()
        self._see_errors(kept, x)
        return None

    def _see_errors(self, kept: KeptValue, x: Tensor) -> None:
        sampled = [(place, watched) for place, watched in kept.watching if watched.sampled]
        if not sampled or kept.packed is None:
            return
        error = decode(kept.packed) - x
        for place, watched in sampled:
            watched.error = sample(matrix(kept.reads[place].place, error), watched.batched).clone()

    def read(self, kept: KeptValue, see: Callable[[Tensor], None]) -> Tensor:
        """Raises where a copy cannot be read, which ends the backward pass."""
        with torch.no_grad(), self._budget.reading(kept):
            found = kept.plain.clone() if kept.packed is None else decode(kept.packed)
        storage = found.untyped_storage()
        working = 0 if kept.packed is None else working_bytes(found, kept.nbytes, UNPACKING)
        self._figures.holding.unpacked(StorageWeakRef(storage), int(storage.nbytes()), kept, working)
        try:
            with torch.no_grad():
                self._compared(kept, found)
                see(found)
        except Exception as error:
            self._figures.count_raw(f"HookFailed{type(error).__name__}")
        return found

    def _compared(self, kept: KeptValue, found: Tensor) -> None:
        if not kept.counted:
            self._count(kept)
            kept.counted = True
        if kept.original is not None:
            self._account.compare(kept, [(0, _flat(found))], _flat(kept.original))  # type: ignore[arg-type]

    def see(self, kept: KeptValue, deltas: Sequence[Tensor], first: int, _: Tensor) -> None:
        """Gradients at the outputs of some of those that read it."""
        for place, watched in kept.watching:
            if first <= place < first + len(deltas):
                delta = deltas[place - first]
                watched.see((delta.mT if kept.reads[place].turned else delta,))

    def see_again(self, kept: KeptValue, inputs: Sequence[Tensor], tickets: Sequence[int], program: str, found: Tensor) -> None:
        """What is read beside it for gradients that go on."""
        once, kept.once = kept.once, None
        if once is not None and once.operation.observing:
            failing(
                once.operation, self._figures.count_raw, lambda: once.see(found, looked(inputs, tickets), program, self._noise)
            )

    def _count(self, kept: KeptValue) -> None:
        if kept.beside:
            self._figures.count_passed(COMPILED, kept.beside)
        self._figures.count_storage(kept.nbytes, kept.held_bytes, False)
        if kept.packed is None:
            return self._figures.count_kept(kept.reason, kept.nbytes, kept.layer)
        with self._figures.lock:
            self._figures.compressed += 1
        row = self._figures.layer(kept.layer)
        row.plain += kept.nbytes
        row.saved += kept.held_bytes
        row.outliers += kept.packed.outliers
        return None


def looked(inputs: Sequence[Tensor], tickets: Sequence[int]) -> list[Tensor]:
    """With what is kept in the place of tickets."""
    return [TICKETS.look(one) if place in tickets else one for place, one in enumerate(inputs)]


def _dense(x: Tensor) -> Tensor:
    """As it is, where it fills its memory; the compiler may hand over a part of a larger tensor."""
    last = x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last)
    return x if last or x.is_contiguous() else x.contiguous()


def _flat(x: Tensor) -> Tensor:
    """In the order in which its elements lie in memory."""
    return x.as_strided((x.numel(),), (1,), x.storage_offset())
