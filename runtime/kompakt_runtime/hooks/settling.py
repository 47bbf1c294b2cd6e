"""What becomes of saved tensors once it is known what reads them."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

import torch

from kompakt_runtime.bounds.nonlinear import Operation, Operations, layer_target
from kompakt_runtime.bounds.sigma import contraction
from kompakt_runtime.bounds.site import Site
from kompakt_runtime.bounds.sites import Sites
from kompakt_runtime.bounds.widths import noise, widths
from kompakt_runtime.codec.features import BoundsWanted
from kompakt_runtime.codec.format import LOSSY
from kompakt_runtime.compat.graph import held
from kompakt_runtime.config import Mode, RuntimeConfig
from kompakt_runtime.figures.counted import Figures
from kompakt_runtime.hooks.actions import StorageActions
from kompakt_runtime.saved import states
from kompakt_runtime.saved.account import Account
from kompakt_runtime.saved.entry import SavedStorage
from kompakt_runtime.saved.handle import Handle
from kompakt_runtime.saved.lossless import window_indices
from kompakt_runtime.saved.operators import scales
from kompakt_runtime.saved.pooling import POOLED, window_of
from kompakt_runtime.scope.calls import Call
from kompakt_runtime.uses.consumption import Consumption
from kompakt_runtime.uses.policy import WAITS, Exact, KeepPlain, Lossy, TensorFacts, Use, decide, strictest
from kompakt_runtime.uses.reads import TOLERANT, Read
from kompakt_runtime.uses.trials import Trials
from kompakt_runtime.uses.unknown import HIDDEN

Tensor = Any
Verdict = Lossy | Exact | KeepPlain

EXACTLY: Final = {Read.SIGN: Use.SIGN, Read.SHAPE: Use.SHAPE, Read.LINEAR: Use.WEIGHT_GRADIENT}


class Settling:
    """Decides for each saved tensor of a node, and lets entries be kept accordingly. What fails stays as it is and is counted."""

    def __init__(
        self,
        config: RuntimeConfig,
        figures: Figures,
        sites: Sites,
        operations: Operations | None,
        account: Account,
        actions: StorageActions,
        trials: Trials,
    ) -> None:
        """operations: where what is read for gradients that go on is packed too."""
        self._minimum, self._whole_target = config.min_tensor_bytes, float(config.target)
        self._figures, self._sites, self._operations = figures, sites, operations
        self._account, self._actions, self._trials = account, actions, trials

    @property
    def _target(self) -> float:
        return layer_target(self._whole_target, self._operations, self._figures.steps)

    def read_by(self, uses: Sequence[Consumption]) -> None:
        """All that one node holds of ours."""
        calls = [use.handle.resolve() for use in uses]
        with torch.no_grad():
            self._guarded(uses, partial(self._decide, uses, calls[0]))
            for entry in {id(use.handle.entry): use.handle.entry for use in uses}.values():
                self._guarded(uses, partial(self._actions.conclude, entry))

    def never_read(self, handle: Handle) -> None:
        """Its reader did not become reachable."""
        handle.resolve()
        self._count(HIDDEN, handle)
        handle.entry.demand.values("ValuesNeeded")
        self._actions.conclude(handle.entry)

    def _guarded(self, uses: Sequence[Consumption], what: Callable[[], None]) -> None:
        try:
            what()
        except Exception as error:
            self._figures.count_raw(f"SettleFailed{type(error).__name__}")
            for use in uses:
                use.handle.entry.demand.values("ValuesNeeded")

    def _decide(self, uses: Sequence[Consumption], call: Call) -> None:
        uses = [self._believed(use, call) for use in uses]
        operations = self._operation_by_slot(uses, call)
        noisy: dict[Operation, dict[str, Any]] = {}
        for use in uses:
            operation = operations.get(use.slot)
            bound = self._one(use, call, operation)
            if operation is not None and bound is not None and operation.observing:
                noisy.setdefault(operation, {})[use.slot] = bound
        for operation, bounds in noisy.items():
            if self._operations is not None:
                self._operations.watch(operation, uses[0].node, bounds)

    def _operation_by_slot(self, uses: Sequence[Consumption], call: Call) -> dict[str, Operation]:
        """What the node reads of each storage is a nonlinear operation of the module that runs: errors in queries and in values
        do not do the same, and of those in one storage there is one bound.
        """
        if self._operations is None or call.exact or call.mode != "ErrorBounded":
            return {}
        slots: dict[int, dict[str, None]] = {}
        for use in uses:
            if self._use(use, call) is Use.NONLINEAR:
                slots.setdefault(id(use.handle.entry), {})[use.slot] = None
        found: dict[str, Operation] = {}
        for some in slots.values():
            operation = self._operations.of(call, " ".join([kind(uses, some), *(sorted(some) if len(slots) > 1 else ())]))
            # Layers become known one by one in the first forward pass; what runs before all of them is measured with them.
            operation.observing = self._sites.observing() or self._operations.ends.observing
            found.update(dict.fromkeys(some, operation))
        return found

    def _use(self, use: Consumption, call: Call) -> Use:
        if use.read is Read.INDEX and use.node.name() in POOLED:
            return Use.INDICES
        if use.read in TOLERANT and use.read is not Read.LINEAR:
            return Use.VALUES if self._operations is None or call.exact else Use.NONLINEAR
        return Use.VALUES if use.read is None else EXACTLY.get(use.read, Use.VALUES)

    def _believed(self, use: Consumption, call: Call) -> Consumption:
        """Before anything relies on a row that no test verified, it is tried on this machine; without it the tensor stays."""
        what = self._use(use, call)
        lossy = what in (Use.NONLINEAR, Use.WEIGHT_GRADIENT)
        if not use.unverified or what is Use.VALUES or (lossy and call.mode != "ErrorBounded"):
            return use
        doubt = self._trials.doubt(use)
        return replace(use, read=None, doubt=doubt) if doubt else use

    def _one(self, use: Consumption, call: Call, operation: Operation | None) -> Any:
        """How wide the errors of a nonlinear operation's operand are, if it is one that may have errors."""
        handle, what = use.handle, self._use(use, call)
        if what is Use.WEIGHT_GRADIENT:
            self._linear(use, call)
            return None
        if what is Use.NONLINEAR and operation is not None:
            return self._nonlinear(use, operation, call)
        verdict = decide(what, self._facts(handle), call.mode, self._minimum, None)
        if verdict is Exact.NOTHING:
            handle.use = Use.SHAPE
        elif verdict is Exact.CELLS:
            self._indices(use)
        elif verdict is WAITS:
            handle.entry.demand.signs += 1
        else:
            self._plain(use, verdict)
        return None

    def _linear(self, use: Consumption, call: Call) -> None:
        handle, entry = use.handle, use.handle.entry
        site = self._sites.of_parameter(use.parameter, call.module, call.outermost)
        if site is None:
            return self._plain(use, decide(Use.VALUES, self._facts(handle), call.mode, self._minimum, None))
        handle.use = Use.WEIGHT_GRADIENT  # packed or not: who looks for room counts the gradient that is being made
        if entry.alias is None:
            return self._served(entry)
        x, mode = handle.view(entry.alias), strictest(call.mode, site.mode)
        operation = contraction(use.node, use.slot, x.shape, use.parameter) if site.observing or site.features else None
        if operation is not None and site.observing and mode != "None":
            watched = site.watch(use.node, x, operation)
            if self._operations is not None:
                self._operations.flow.layer(site, use.node)
            entry.demand.watching.append((handle, watched))
        may_be_lossy = mode == "ErrorBounded" and self._facts(handle).lossy_type
        bound = site.bound_for(x, self._target) if may_be_lossy else None
        return self._judged(use, mode, bound, site, site.asks(x, bound, operation) if bound is not None else None)

    def _nonlinear(self, use: Consumption, operation: Operation, call: Call) -> Any:
        handle, entry = use.handle, use.handle.entry
        if entry.alias is None:
            return self._served(entry)
        x, expected = handle.view(entry.alias), self._operations.expected if self._operations is not None else 0
        by_width = widths(use, x) if self._facts(handle).lossy_type else None
        deviates = None if by_width is None else 1.0
        bound = operation.bound_for(x, self._target, expected, deviates) if self._facts(handle).lossy_type else None
        asked = None if bound is None else BoundsWanted(bound) if by_width is None else by_width.asked(x, bound)
        self._judged(use, call.mode, None if asked is None else asked.bound, operation, asked)
        if handle.use is not Use.NONLINEAR or bound is None or asked is None:
            return None
        if by_width is not None and math.isfinite(behind := self._actions.deriving.behind((operation, use.slot))):
            entry.demand.wished.append(by_width.behind(x, behind))
        if operation.observing:
            operation.see_input(x, bound, relative=by_width is not None)
        return noise(asked, x)

    def _judged(
        self, use: Consumption, mode: Mode, bound: float | None, by: Site | Operation, asked: BoundsWanted | None = None
    ) -> None:
        handle = use.handle
        held_elsewhere = by.name in self._account.held and not by.observing
        verdict = decide(Use.NONLINEAR, self._facts(handle), mode, self._minimum, bound, held_elsewhere)
        if not isinstance(verdict, Lossy):
            return self._plain(use, verdict)
        if isinstance(by, Operation):
            handle.use = Use.NONLINEAR
        handle.asked = (by, use.slot)
        handle.entry.demand.ask(asked or BoundsWanted(verdict.bound), by, use.slot, nbytes(handle))
        handle.entry.demand.scales |= scales(use.node.name())
        return None

    def _indices(self, use: Consumption) -> None:
        """Kept as places inside of windows, where nobody else reads them."""
        handle, entry, pooled = use.handle, use.handle.entry, POOLED[use.node.name()]
        inputs = held(use.node, "self")
        ours = [one for one in inputs if isinstance(one, Handle)]
        if not ours or entry.demand.whole or entry.alias is None or nbytes(handle) != entry.nbytes:
            entry.demand.values("ValuesNeeded")
            return
        copy = window_indices(handle.view(entry.alias), tuple(ours[0].shape)[-pooled:], window_of(use.node, pooled))
        entry.become(states.MaskState(copy, exact=True))
        return

    @staticmethod
    def _served(entry: SavedStorage) -> None:
        """What is kept of it gives every bit back, and the original is gone: there is nothing to decide or to measure."""
        entry.demand.values("ValuesNeeded")

    def _plain(self, use: Consumption, verdict: Verdict) -> None:
        if use.read is None:
            self._count(use.place, use.handle)
        reason = verdict.reason if isinstance(verdict, KeepPlain) else "ValuesNeeded"
        use.handle.entry.demand.values(use.doubt or reason)

    def _count(self, place: str, handle: Handle) -> None:
        """Once a storage: one that must stay for another reason as well would win nothing by a row."""
        if not handle.entry.demand.readers:
            self._figures.unknown.add(place, handle.entry.nbytes)

    @staticmethod
    def _facts(handle: Handle) -> TensorFacts:
        return TensorFacts(handle.entry.nbytes, handle.dtype in LOSSY)


def nbytes(handle: Handle) -> int:
    return int(torch.Size(handle.shape).numel()) * int(handle.dtype.itemsize)


def kind(uses: Sequence[Consumption], slots: Iterable[str]) -> str:
    """What stands behind the module's name in the table of layers."""
    if any(use.read is Read.NORM for use in uses if use.slot in slots):
        return "norm"
    name = str(uses[0].node.name()).split("Backward")[0]
    return "attention" if "Attention" in name else name.lower()
