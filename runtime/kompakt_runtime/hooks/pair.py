"""The pair of functions that autograd calls for every tensor it saves and reads again."""

import os
from typing import Any, Final

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from kompakt_runtime.bounds.nonlinear import Operations
from kompakt_runtime.bounds.sites import Sites
from kompakt_runtime.budget.control import BudgetControl
from kompakt_runtime.codec.format import LOSSY
from kompakt_runtime.codec.rounding import Seeds
from kompakt_runtime.codec.select import UNPACKING, untried, working_bytes
from kompakt_runtime.compat.graph import in_backward
from kompakt_runtime.compat.tensors import storage_key
from kompakt_runtime.config import Mode, RuntimeConfig, rank
from kompakt_runtime.figures.counted import Figures
from kompakt_runtime.hooks.actions import StorageActions
from kompakt_runtime.hooks.settling import Settling
from kompakt_runtime.hooks.weights import CastWeights
from kompakt_runtime.offload.schedule import Offloading
from kompakt_runtime.saved.account import Account
from kompakt_runtime.saved.derived import Derived, derivation_of
from kompakt_runtime.saved.entry import SavedStorage
from kompakt_runtime.saved.handle import DecodeFailed, Handle, PlainTensor
from kompakt_runtime.saved.ledger import StorageLedger
from kompakt_runtime.saved.passed import Passed, PassedTensor
from kompakt_runtime.scope.calls import Call
from kompakt_runtime.scope.exclusions import kept_out
from kompakt_runtime.scope.origin import is_parameter
from kompakt_runtime.uses.policy import Exact, KeepPlain, TensorFacts, Use, decide
from kompakt_runtime.uses.readers import Readers
from kompakt_runtime.uses.trials import Trials
from kompakt_runtime.uses.walk import roots

Tensor = Any
# Nobody need wait for the reader of what stays as it is for these.
WHATEVER_READS_IT: Final = frozenset({"ModeNone", "Small"})


class Hooks:
    """pack and unpack. What fails in `pack` is kept as it is and counted by who calls it."""

    def __init__(
        self,
        config: RuntimeConfig,
        figures: Figures,
        sites: Sites,
        operations: Operations | None = None,
        offloading: Offloading | None = None,
        budget: BudgetControl | None = None,
    ) -> None:
        """operations: where nonlinear inputs are packed too; offloading: where host memory is used; budget: of memory, if any."""
        self.operations, self.offloading = operations, offloading
        self.budget = budget or BudgetControl(None)
        # Since gradients of gradients were seen: in them an error of a copy has effects that nobody measures.
        self.exact = False
        self._minimum = config.min_tensor_bytes
        self._figures = figures
        self.account = account = Account(figures)
        self.ledger = StorageLedger(
            account.opened, account.read if config.verify else None, figures.holding.weigh, self._stays, self._room
        )
        self._passed = Passed(self.ledger, figures.count_passed)
        self.seeds = Seeds(rank(os.environ))
        self._actions = StorageActions(self.ledger, account, figures, self.seeds, self.budget)
        self.weights = CastWeights(self.ledger, self._actions.deriving)
        self.trials = Trials(_itself, figures.tried.append, figures.count_raw)
        settling = Settling(config, figures, sites, operations, account, self._actions, self.trials)
        self.readers = Readers(settling.read_by, settling.never_read)

    def pack(self, t: Tensor, call: Call, own: frozenset[int]) -> Handle | PlainTensor:
        """`call` is the innermost module call; `own` are the storages of the model's parameters and buffers. Where it raises, the
        tensor is as it was.
        """
        if type(t) is not torch.Tensor or t.layout != torch.strided or t.is_conj() or t.is_neg():
            if not isinstance(t, torch.nn.Parameter):
                return self.passed(
                    t, "NotPlainTensor", own, call.name
                )  # sparse, of a class of its own, or conjugated only when it is read
            return PlainTensor(t)
        if not t.numel():
            return PlainTensor(t)
        if is_parameter(t) or storage_key(t) in own:
            return self._weight(t, call)
        if strange := untried(t.device):
            return self.passed(t, strange, own, call.name)
        self.readers.packing(t)
        handle = Handle(self.ledger.entry(t), t)
        mode: Mode = "None" if kept_out() else call.mode
        self._store(handle, t, call, mode)
        if self.offloading is not None and handle.entry.handles == 1:
            self.offloading.placed(handle.entry, call.leaving, mode != "None")
        return handle

    def _weight(self, t: Tensor, call: Call) -> Handle | PlainTensor:
        wanted = call.mode != "None" and not kept_out()
        handle = self.weights.handle(t, call.name, self._minimum) if wanted else None
        if handle is None:
            return PlainTensor(t)
        self._figures.holding.weigh(handle.entry)
        return handle

    def passed(self, t: Tensor, reason: str, own: frozenset[int], module: str) -> PlainTensor:
        """A tensor of this module that stays as it is, for this reason, and counts as that."""
        self._figures.count_raw(reason)
        handle = self._passed.handle(t, reason, module)
        storage = handle.passed.storage
        if is_parameter(t) or (storage is not None and storage.cdata in own):
            return PlainTensor(t)
        if storage is None or not self.ledger.holds(storage):
            self._figures.holding.weigh(handle.passed)
        return handle

    def _store(self, handle: Handle, t: Tensor, call: Call, mode: Mode) -> None:
        """Exactly in less room, or as it is: until its reader is known, or for good."""
        entry = handle.entry
        entry.layer = entry.layer or call.name
        constant = t.grad_fn is None  # leaves that want a gradient did not come so far
        facts = TensorFacts(entry.nbytes, t.dtype in LOSSY, t.dtype == torch.bool, constant, call.state is not None)
        verdict = decide(Use.VALUES, facts, mode, self._minimum, None)
        if isinstance(verdict, Exact) and self._actions.exactly(entry, t, verdict, call):
            return self._figures.holding.weigh(entry)
        entry.hold(t)
        handle.wait(call)
        self._figures.holding.weigh(entry)
        if isinstance(verdict, KeepPlain) and verdict.reason in WHATEVER_READS_IT:
            handle.resolve()
            entry.demand.values(verdict.reason)
            self._actions.conclude(entry)
        else:
            entry.learn(lambda: derivation_of(t, (Handle, PlainTensor), PlainTensor))
            self.readers.packed(t, handle)
        return None

    def returned(self, output: Any, outermost: bool) -> None:
        """A module's call is over. After the outermost one nothing is left open; without an output nothing new is known."""
        self.readers.returned(output, outermost)
        if outermost and self.operations is not None:
            self.operations.flow.look(roots(output))
        self.ledger.settle_waiting(everything=outermost)

    def _read_for_a_graph(self, handle: Handle | PlainTensor) -> None:
        if not isinstance(handle, PlainTensor) and handle.entry.bounded:
            self._figures.count_raw("DoubleBackward")
            self.exact = True

    def _opening(self, offloading: Offloading, handle: Handle | PlainTensor) -> None:
        """What it is computed from is read as well."""
        offloading.opening(handle)
        copy = handle.entry.copy if isinstance(handle, Handle) else None
        for source in copy.handles if isinstance(copy, Derived) else ():
            self._opening(offloading, source)

    def unpack(self, handle: Handle | PlainTensor) -> Tensor:
        """Raises RuntimeError where plain autograd would: the tensor was changed in place meanwhile; DecodeFailed or an error for
        want of memory where a copy cannot be read.
        """
        if torch.is_grad_enabled() and in_backward():
            self._read_for_a_graph(handle)
        if self.offloading is not None:
            self._opening(self.offloading, handle)
        try:
            with self.budget.reading(handle.entry if isinstance(handle, Handle) else None):
                t = self.ledger.open(handle)
        except (DecodeFailed, MemoryError, torch.cuda.OutOfMemoryError) as error:
            self._figures.count_raw(f"DecodeFailed{type(error.__cause__).__name__}")
            raise
        if isinstance(handle, PassedTensor):
            self._passed.read(handle)
        if self.offloading is not None:
            self.offloading.opened()
        self._unpacked(handle, t)
        noisy = t if self.operations is None else self.operations.noise.added(handle, t)
        if noisy is not t and isinstance(handle, Handle):
            self._figures.holding.unpacked(*_storage(noisy), handle.entry)
        return noisy

    def _stays(self, entry: SavedStorage, flat: Tensor) -> None:
        self._figures.holding.unpacked(*_storage(flat), entry)

    def _room(self) -> int:
        return self._figures.holding.room

    def during_trial(self, handle: Handle | PlainTensor) -> Tensor:
        """Of a node that a trial runs, as a forward pass does: no reader that counts."""
        other = self.trials.substitutes.of(handle)
        if other is None:
            other = _itself(handle)
        return self.ledger.looked_at(handle)[0] if other is None else other

    def _unpacked(self, handle: Handle | PlainTensor, t: Tensor) -> None:
        """A copy that somebody reads now is there beside what is kept."""
        if not isinstance(handle, Handle) or handle.entry.alias is not None:
            return
        entry = handle.entry
        working = working_bytes(t, entry.nbytes, UNPACKING) if entry.packed is not None else 0
        if isinstance(entry.copy, Derived):
            sources = (one.entry for one in entry.copy.handles if isinstance(one, Handle))
            gone = (one for one in sources if one.alias is None and self.ledger.decoded.latest(one) is None)
            working = sum(source.nbytes for source in gone)
        self._figures.holding.unpacked(*_storage(t), entry, working)


def _itself(handle: Any) -> Tensor | None:
    """The tensor, where it is not kept in another form."""
    there = handle.entry.alias if isinstance(handle, Handle) else None
    return None if there is None else handle.view(there)


def _storage(t: Tensor) -> tuple[StorageWeakRef, int]:
    storage = t.untyped_storage()
    return StorageWeakRef(storage), int(storage.nbytes())
