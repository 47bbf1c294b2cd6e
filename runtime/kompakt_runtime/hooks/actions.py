"""What was decided for a saved tensor, carried out on its entry."""

from collections.abc import Callable
from typing import Any

import torch

from kompakt_runtime.budget.control import BudgetControl
from kompakt_runtime.codec import pieces
from kompakt_runtime.codec.features import BoundsWanted, agreed
from kompakt_runtime.codec.rounding import Seeds
from kompakt_runtime.codec.select import PACKING, encoder, working_bytes
from kompakt_runtime.figures.counted import WITHIN_BUDGET, Figures
from kompakt_runtime.hooks.deriving import Deriving, magnitude
from kompakt_runtime.saved import states
from kompakt_runtime.saved.account import Account
from kompakt_runtime.saved.compare import sample, sample_error
from kompakt_runtime.saved.entry import SavedStorage, stream_of, whole_storage
from kompakt_runtime.saved.later import defers
from kompakt_runtime.saved.ledger import StorageLedger
from kompakt_runtime.saved.lossless import Mask, bool_mask, two_valued
from kompakt_runtime.saved.replay import Replay, Replays
from kompakt_runtime.scope.calls import Call
from kompakt_runtime.uses.policy import Exact

Tensor = Any


class StorageActions:
    """An entry serves all operations that save its storage: what one decision changes must still do for those before it."""

    def __init__(self, ledger: StorageLedger, account: Account, figures: Figures, seeds: Seeds, budget: BudgetControl) -> None:
        self._budget = budget
        self._ledger, self._account, self._figures, self._seeds = ledger, account, figures, seeds
        self._replays = Replays()
        self.deriving = Deriving(ledger, account, figures)

    def exactly(self, entry: SavedStorage, t: Tensor, verdict: Exact, call: Call) -> bool:
        """Every bit in less room, if that can be."""
        if not entry.same:
            copy = self._small(whole_storage(t), t, verdict, call)
            if copy is None:
                return False
            entry.back(t)
            entry.become(states.MaskState(copy, exact=True))
        return True

    def _small(self, source: Tensor, t: Tensor, verdict: Exact, call: Call) -> Mask | Replay | None:
        if verdict is Exact.BITS:
            return bool_mask(source)
        replay = self._replays.of(call.name, call.module, t, source, call.state) if verdict is Exact.REPLAY else None
        return replay or two_valued(source)

    def conclude(self, entry: SavedStorage) -> None:
        """Keeps what its readers read, if all of them are known."""
        before = entry.state
        try:
            if not (entry.demand.unresolved or entry.same):
                if isinstance(entry.state, states.PlainState):  # it came back from host memory meanwhile
                    entry.back(entry.state.alias)
                self._conclude(entry)
        finally:
            packed = entry.packed is not None and entry.state is not before
            working = working_bytes(entry.probe, entry.nbytes, PACKING) if packed else 0
            self._figures.holding.weigh(entry, working)

    def _conclude(self, entry: SavedStorage) -> None:
        demand = entry.demand
        if demand.whole:
            if not self._derived(self.deriving.exactly, entry):
                entry.stay()
        elif demand.covered:
            if self._budget.leaves(demand.asked_by):
                entry.stay(WITHIN_BUDGET)
            else:
                with self._budget.packing(entry, demand.asked_by.name):
                    self._within(entry)
        elif demand.signs:
            self._ledger.wait(entry)
        else:
            entry.become(states.ShapeOnlyState())
        demand.watching = []
        entry.forget()

    def _within(self, entry: SavedStorage) -> None:
        """A copy of which no element is off by more than the least that an operation asked for."""
        demand, bound = entry.demand, self.deriving.bound(entry)
        together = None
        if bound == demand.ceiling:  # else what is computed from it wishes one bound
            together = agreed([*demand.asked, *demand.wished])
        if together is None:
            bound = min([bound, *(one.bound for one in demand.wished)])
        if demand.scales and entry.alias is not None and not defers(entry.alias):
            demand.largest = magnitude(entry.alias)
        if obstacle := _obstacle(entry):
            return entry.stay(obstacle)
        obstacle = self._packed(entry, bound, together) if entry.making is None or entry.bound > bound else ""
        if obstacle:
            return entry.stay(obstacle)
        row = self._figures.layer(demand.asked_by.name)
        row.bound = max(row.bound or 0.0, entry.bound)
        return None

    def _packed(self, entry: SavedStorage, bound: float, together: BoundsWanted | None) -> str:
        """Why it cannot be packed; "" when it is, or will be once its size is known."""
        state, source, asked_by = entry.state, entry.alias, entry.demand.asked_by
        entry.layer = asked_by.name
        widest, channels = (bound, None) if together is None else (together.widest, together.channels)
        tightest = widest if channels is None else widest * 2.0 ** -int(channels.depths.max())
        if isinstance(state, states.PendingState) and state.aside is not None and state.aside.bound <= tightest:
            entry.become(state.aside)
        elif not self._derived(self.deriving.within, entry, bound):
            try:
                seed = self._seeds.of(entry)
                if not self._ledger.later.compress(entry, source, widest, asked_by.name, asked_by.observing, seed, channels):
                    return "NoGain"
            except Exception as error:
                return f"EncodeFailed{type(error).__name__}"
        if asked_by.observing and entry.packed is not None:
            self._account.compare(entry, pieces(entry.packed), source)
        self._see_errors(entry, source)
        return ""

    def _derived(self, how: Callable[..., bool], *what: Any) -> bool:
        try:
            return how(*what)
        except Exception as error:
            self._figures.count_raw(f"DeriveFailed{type(error).__name__}")
            return False

    def _see_errors(self, entry: SavedStorage, source: Tensor) -> None:
        for handle, watched in entry.demand.watching:
            if not watched.sampled:
                continue
            t = handle.view(source)
            if isinstance(entry.state, states.PackedState):
                watched.error = sample_error(entry.state.copy, t, watched.batched)
            elif isinstance(entry.state, states.DerivedState) and (flat := self.deriving.again(entry.state.copy)) is not None:
                watched.error = sample(handle.view(flat), watched.batched) - sample(t, watched.batched)


def _obstacle(entry: SavedStorage) -> str:
    if 2 * entry.demand.covered < entry.nbytes:
        return "PartOfStorage"
    if entry.stream != stream_of(entry.probe):
        return "OtherStream"  # which may not have come so far as to hold the numbers
    if entry.probe.is_cuda and torch.cuda.is_current_stream_capturing():
        return "GraphCapture"
    return encoder(entry.probe.device, entry.probe.dtype).reason
