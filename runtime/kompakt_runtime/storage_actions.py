"""What was decided for a saved tensor, carried out on its entry."""

from typing import Any

import torch

from kompakt_runtime.account import Account
from kompakt_runtime.calls import Call
from kompakt_runtime.codec import pieces
from kompakt_runtime.codec.select import encoder
from kompakt_runtime.compare import sample_error
from kompakt_runtime.entry import SavedStorage, whole_storage
from kompakt_runtime.figures import Figures
from kompakt_runtime.ledger import StorageLedger
from kompakt_runtime.lossless import Mask, bool_mask, two_valued
from kompakt_runtime.nonlinear import Operation
from kompakt_runtime.policy import Exact
from kompakt_runtime.replay import Replay, Replays
from kompakt_runtime.sites import Site

Tensor = Any


class StorageActions:
    """An entry serves all operations that save its storage: what one decision changes must still do for those before it."""

    def __init__(self, ledger: StorageLedger, account: Account, figures: Figures) -> None:
        self._ledger, self._account, self._figures = ledger, account, figures
        self._replays = Replays()

    def exactly(self, entry: SavedStorage, t: Tensor, verdict: Exact, call: Call) -> None:
        """What is read, bit for bit, in less room if that can be."""
        entry.layer = entry.layer or call.name
        if verdict is Exact.NOTHING:
            if entry.handles == 1:
                entry.replace(None, entry.alias)
        elif verdict is Exact.CELLS:
            entry.reason = entry.reason or "ValuesNeeded"  # unless a pool turns up
        elif not (entry.copy is not None and entry.exact):
            source = whole_storage(t)
            copy = self._small(source, t, verdict, call)
            if copy is None:
                return keep(entry, t, "ValuesNeeded")
            entry.replace(copy, source, exact=True)
        return None

    def _small(self, source: Tensor, t: Tensor, verdict: Exact, call: Call) -> Mask | Replay | None:
        if verdict is Exact.BITS:
            return bool_mask(source)
        replay = self._replays.of(call.name, call.module, t, source, call.state) if verdict is Exact.REPLAY else None
        return replay or two_valued(source)

    def within(self, bound: float, entry: SavedStorage, t: Tensor, site: Site | Operation) -> None:
        """A copy of which no element is off by more than `bound`, or than what another operation asked for."""
        bound = entry.ceiling = min(entry.ceiling, bound)
        if entry.whole or (entry.taken and entry.bound <= bound) or (entry.copy is not None and entry.exact):
            entry.linear += 1
            return None
        if t.is_cuda and torch.cuda.is_current_stream_capturing():
            return keep(entry, t, "GraphCapture")
        if reason := encoder(t.device, t.dtype).reason:
            return keep(entry, t, reason)
        try:
            gained = self._ledger.compress(entry, t, bound, site.name, at_once=site.observing)
        except Exception as error:
            return keep(entry, t, f"EncodeFailed{type(error).__name__}")
        if not gained:
            return keep(entry, t, "NoGain")
        entry.linear += 1
        entry.layer = site.name
        row = self._figures.layer(site.name)
        row.bound = max(row.bound or 0.0, bound)
        if site.observing and entry.packed is not None:
            self._account.compare(entry, pieces(entry.packed), whole_storage(t))
            if isinstance(site, Site) and site.sampled:
                site.see_error(sample_error(entry.packed, t, site.batched(t)))
        return None


def keep(entry: SavedStorage, t: Tensor, reason: str) -> None:
    """The storage as it is, or what gives every bit of it back."""
    entry.readers += 1
    if not (entry.copy is not None and entry.exact):
        entry.keep(t)
    entry.reason = entry.reason or reason
