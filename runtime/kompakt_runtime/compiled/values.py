"""What becomes of values that compiled graphs hand over: packed by the bounds of the parameters whose gradients they make."""

from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from kompakt_runtime.bounds.sigma import Contraction
from kompakt_runtime.bounds.site import MeasuredCall, Site
from kompakt_runtime.budget.control import WITHIN_BUDGET
from kompakt_runtime.codec import Packed, decode, encode, pieces
from kompakt_runtime.codec.features import BoundsWanted, agreed
from kompakt_runtime.codec.format import LOSSY
from kompakt_runtime.codec.select import PACKING, UNPACKING, encoder, working_bytes
from kompakt_runtime.compiled.operators import LATER
from kompakt_runtime.compiled.parts import SessionParts
from kompakt_runtime.compiled.running import Running
from kompakt_runtime.compiled.weight_gradients import CONVOLVED, ReadAs, of_text
from kompakt_runtime.config import Mode
from kompakt_runtime.figures.counted import COMPILED, SWITCHED_OFF
from kompakt_runtime.saved.compare import sample
from kompakt_runtime.scope.exclusions import excluded, kept_out
from kompakt_runtime.uses.policy import KeepPlain, Lossy, TensorFacts, Use, decide, strictest

Tensor = Any
NO_SITE = "CompiledNoParameter"  # of what is read for a gradient whose parameter no module has


class KeptValue:
    """One value between its forward and its backward pass. As an entry, as far as it is counted and compared."""

    same = False  # an entry's word for a copy of every bit

    def __init__(self, values: "CompiledValues", x: Tensor, reads: tuple[ReadAs, ...], beside: int | None) -> None:
        self._values, self.reads, self.beside = values, reads, beside
        self.nbytes, self.probe = int(x.numel() * x.element_size()), x.new_empty(0)
        self.layer, self.reason, self.counted = "", "", False
        self.packed: Packed | None = None
        self.plain: Tensor = None
        self.original: Tensor = None
        self.bound = 0.0
        self.share: Any = None
        self.watching: list[tuple[int, MeasuredCall]] = []  # by which reader's output the gradient is

    @property
    def bounded(self) -> bool:
        return self.packed is not None

    @property
    def copy(self) -> Packed | None:
        return self.packed

    @property
    def held_bytes(self) -> int:
        return self.nbytes if self.packed is None else int(self.packed.nbytes)

    def stay(self, x: Tensor, reason: str) -> None:
        """A copy of it all: the graph takes the value's own memory for other things."""
        self.plain, self.packed, self.reason = x.detach().clone(), None, reason

    def read(self, deltas: Sequence[Tensor], first: int) -> Tensor:
        return self._values.read(self, deltas, first)


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
        self.given = 0  # values, so far
        self._kept_out: WeakKeyDictionary[Any, WeakSet[Any]] = WeakKeyDictionary()

    def keep(self, x: Tensor, views: Sequence[Tensor], how: str, beside: int) -> KeptValue:
        """What fails stays as it is, and is counted."""
        self.given += 1
        kept = KeptValue(self, x, of_text(how), None if beside == LATER else beside)
        try:
            with torch.no_grad():
                self._keep(kept, _dense(x.detach()), views)
        except Exception as error:
            self._figures.count_raw(f"PackFailed{type(error).__name__}")
            kept.watching = []
            kept.stay(x, "CompiledFailed")
        self._figures.holding.weigh(kept, working_bytes(x, kept.nbytes, PACKING) if kept.bounded else 0)
        return kept

    def _keep(self, kept: KeptValue, x: Tensor, views: Sequence[Tensor]) -> None:
        here = self._running(views[0], kept.beside is not None)
        if reason := here.reason or ("ModeNone" if kept_out() else ""):
            kept.counted = reason == SWITCHED_OFF
            return kept.stay(x, reason)
        kept.beside = None if here.hooked else kept.beside
        weights = [weight for view in views if (weight := self._parameter(view, here.outermost)) is not None]
        found = (self._sites.of_parameter(weight, here.module, here.outermost) for weight in weights)
        sites = [site for site in found if site is not None]
        if len(sites) < len(views):
            return kept.stay(x, NO_SITE)
        kept.layer, mode = sites[0].name, strictest(*(site.mode for site in sites))
        if any(site.module() in self._excluded(here.outermost) for site in sites):
            return kept.stay(x, "ModeNone")
        pairs = enumerate(zip(sites, weights, strict=True))
        asked = [self._asked(kept, place, site, weight, x, mode) for place, (site, weight) in pairs]
        bounds = [one.bound for one in asked if one is not None]
        bound = min(bounds) if len(bounds) == len(asked) else None
        verdict = decide(Use.NONLINEAR, TensorFacts(kept.nbytes, x.dtype in LOSSY), mode, self._minimum, bound)
        if isinstance(verdict, Lossy):
            return self._within(kept, x, verdict.bound, agreed([one for one in asked if one is not None]), sites[0])
        return kept.stay(x, verdict.reason if isinstance(verdict, KeepPlain) else "ValuesNeeded")

    def _excluded(self, outermost: Any) -> WeakSet[Any]:
        """Modules that `exclude` was asked to keep out, and those in them: what it does when they run is not in compiled code."""
        if outermost not in self._kept_out:
            apart = [module for module in outermost.modules() if excluded(module)]
            self._kept_out[outermost] = WeakSet(inner for module in apart for inner in module.modules())
        return self._kept_out[outermost]

    def _asked(self, kept: KeptValue, place: int, site: Site, weight: Tensor, x: Tensor, mode: Mode) -> BoundsWanted | None:
        """What this parameter's gradient bears; in measured steps it is seen."""
        operand, operation = self._met(kept.reads[place], x, weight)
        if site.observing and mode != "None":
            kept.watching.append((place, site.measure(operand, operation)))
        bound = site.bound_for(operand, self._target()) if mode == "ErrorBounded" and x.dtype in LOSSY else None
        return None if bound is None else site.asks(operand, bound, operation)

    @staticmethod
    def _met(read: ReadAs, x: Tensor, weight: Tensor) -> tuple[Tensor, Contraction]:
        operand = x if read.place == CONVOLVED else x.reshape(-1, x.shape[-1])
        shape = tuple(weight.shape)
        return operand, Contraction(read.place, tuple(operand.shape), shape, 1.0, read.arguments, read.outputs_at)

    def _within(self, kept: KeptValue, x: Tensor, bound: float, together: BoundsWanted | None, site: Site) -> None:
        """Packed, unless the budget of memory suffices without."""
        self._budget.entered(x.device)
        if self._budget.leaves(site):
            return kept.stay(x, WITHIN_BUDGET)
        with self._budget.packing(kept, site.name):
            return self._pack(kept, x, bound, together, site)

    def _pack(self, kept: KeptValue, x: Tensor, bound: float, together: BoundsWanted | None, site: Site) -> None:
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
            operand = error if kept.reads[place].place == CONVOLVED else error.reshape(-1, error.shape[-1])
            watched.error = sample(operand, watched.batched).clone()

    def read(self, kept: KeptValue, deltas: Sequence[Tensor], first: int) -> Tensor:
        """Raises where a copy cannot be read, which ends the backward pass."""
        with torch.no_grad(), self._budget.reading(kept):
            found = kept.plain.clone() if kept.packed is None else decode(kept.packed)
        storage = found.untyped_storage()
        working = 0 if kept.packed is None else working_bytes(found, kept.nbytes, UNPACKING)
        self._figures.holding.unpacked(StorageWeakRef(storage), int(storage.nbytes()), kept, working)
        try:
            with torch.no_grad():
                self._read(kept, found, deltas, first)
        except Exception as error:
            self._figures.count_raw(f"HookFailed{type(error).__name__}")
        return found

    def _read(self, kept: KeptValue, found: Tensor, deltas: Sequence[Tensor], first: int) -> None:
        if not kept.counted:
            self._count(kept)
            kept.counted = True
        if kept.original is not None:
            self._account.compare(kept, [(0, _flat(found))], _flat(kept.original))  # type: ignore[arg-type]
        for place, watched in kept.watching:
            if first <= place < first + len(deltas):
                delta = deltas[place - first]
                watched.see((delta.mT if kept.reads[place].turned else delta,))

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


def _dense(x: Tensor) -> Tensor:
    """As it is, where it fills its memory; the compiler may hand over a part of a larger tensor."""
    last = x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last)
    return x if last or x.is_contiguous() else x.contiguous()


def _flat(x: Tensor) -> Tensor:
    """In the order in which its elements lie in memory."""
    return x.as_strided((x.numel(),), (1,), x.storage_offset())
