"""The pair of functions that autograd calls for every tensor it saves and reads again, and what a module call's end settles."""

import math
from collections.abc import Callable
from typing import Any

import torch

from kompakt_runtime.account import Account
from kompakt_runtime.autograd_state import packed_in
from kompakt_runtime.calls import Call, Saved
from kompakt_runtime.codec.format import LOSSY
from kompakt_runtime.codec.select import untried
from kompakt_runtime.config import Mode, RuntimeConfig
from kompakt_runtime.exclusions import kept_out
from kompakt_runtime.figures import Figures
from kompakt_runtime.graph import pool_nodes, window_of
from kompakt_runtime.ledger import DecodeFailed, Handle, PlainTensor, StorageLedger
from kompakt_runtime.lossless import Window, window_indices
from kompakt_runtime.nonlinear import Operation, Operations
from kompakt_runtime.offload import Offloading
from kompakt_runtime.origin import is_input_of, is_own_relu_save, is_parameter
from kompakt_runtime.passed import Passed, PassedTensor
from kompakt_runtime.policy import WAITS, Exact, KeepPlain, Lossy, TensorFacts, Use, decide
from kompakt_runtime.sites import Site
from kompakt_runtime.storage_actions import StorageActions, keep

Tensor = Any


class Hooks:
    """pack and unpack. What fails in `pack` is kept as it is and counted by who calls it."""

    def __init__(
        self, config: RuntimeConfig, figures: Figures, operations: Operations | None = None, offloading: Offloading | None = None
    ) -> None:
        """operations: where nonlinear inputs are packed too; offloading: where host memory is used."""
        self.operations, self.offloading = operations, offloading
        self._minimum = config.min_tensor_bytes
        self._target = config.layer_target
        self._figures = figures
        self._account = Account(figures)
        self.ledger = StorageLedger(self._account.opened, self._account.read if config.verify else None)
        self._passed = Passed(self.ledger, figures.count_passed)
        self._keeping = StorageActions(self.ledger, self._account, figures)

    def pack(self, t: Tensor, call: Call, own: frozenset[int]) -> Handle | PlainTensor:
        """`call` is the innermost module call; `own` are the storages of the model's parameters and buffers. Where it raises, the
        tensor is as it was.
        """
        if type(t) is not torch.Tensor or t.layout != torch.strided or t.is_conj() or t.is_neg():
            if not isinstance(t, torch.nn.Parameter):
                return self.passed(t, "NotPlainTensor", own)  # sparse, of a class of its own, or conjugated only when it is read
            return PlainTensor(t)
        if not t.numel():
            return PlainTensor(t)
        if is_parameter(t) or t.untyped_storage()._cdata in own:
            return PlainTensor(t)
        if strange := untried(t.device):
            return self.passed(t, strange, own)
        use = self._use(t, call)
        handle = Handle(self.ledger.entry(t), t, use)
        site = call.site if use is Use.WEIGHT_GRADIENT else None
        if site is not None and site.observing:
            site.see_input(t.detach())
        self._store(handle, t, call, site)
        if self.offloading is not None and handle.entry.handles == 1:
            self.offloading.placed(handle.entry, call.leaving, not kept_out() and call.mode != "None")
        if self.operations is not None and use is Use.VALUES and call.mode == "ErrorBounded" and not kept_out():
            call.values.append(handle)
        if use is Use.INDICES and call.last is not None:
            call.pools.append((call.last, handle))
        made = t.grad_fn._sequence_nr() if t.grad_fn is not None else -1
        call.last = Saved(handle, made) if t.is_floating_point() and t.dim() > 2 else None
        return handle

    def passed(self, t: Tensor, reason: str, own: frozenset[int]) -> PlainTensor:
        """A tensor that stays as it is, for this reason, and counts as that."""
        self._figures.count_raw(reason)
        handle = self._passed.handle(t, reason)
        storage = handle.passed.storage
        return PlainTensor(t) if is_parameter(t) or (storage is not None and storage.cdata in own) else handle

    def _store(self, handle: Handle, t: Tensor, call: Call, site: Site | None) -> None:
        entry, use = handle.entry, handle.use
        constant = t.grad_fn is None  # leaves that want a gradient did not come so far
        whole = 2 * t.numel() * t.element_size() >= entry.nbytes
        facts = TensorFacts(entry.nbytes, t.dtype in LOSSY, whole, t.dtype == torch.bool, constant, call.state is not None)
        held = site is not None and site.name in self._account.held and not site.observing
        mode: Mode = "None" if kept_out() else call.mode
        may_be_lossy = site is not None and mode == "ErrorBounded" and entry.nbytes >= self._minimum and facts.lossy_type
        bound = site.bound_for(t.detach(), self._target) if site is not None and may_be_lossy else None
        verdict = decide(use, facts, mode, self._minimum, bound, held)
        if isinstance(verdict, Lossy):
            assert site is not None
            self._keeping.within(verdict.bound, entry, t, site)
        elif isinstance(verdict, Exact):
            self._keeping.exactly(entry, t, verdict, call)
        elif verdict is WAITS:
            entry.signs += 1
            entry.layer = entry.layer or call.name
            self.ledger.wait(entry)
        else:
            keep(entry, t, verdict.reason)

    def settle_pools(self, call: Call, output: Any) -> "list[tuple[Saved, Handle]]":
        """After a module call: pairs of input and indices that belong to max-pooling inside it. Returns those not found."""
        nodes = {}
        for node, pooled in pool_nodes(output, {saved.made for saved, _ in call.pools}):
            data = packed_in(node, "self")
            if isinstance(data, Handle):  # a user's own hooks pack into anything
                nodes[data] = (node, pooled)
        left = []
        for saved, handle in call.pools:
            found = nodes.get(saved.handle)
            if found is None or packed_in(found[0], "result1") is not handle:
                left.append((saved, handle))
                continue
            self.ledger.released(saved.handle)
            saved.handle.entry.layer = saved.handle.entry.layer or call.name
            self._settle_indices(handle, tuple(saved.handle.shape)[-found[1] :], window_of(*found))
        return left

    def settle_operations(self, call: Call, output: Any, measured: Callable[[], bool]) -> None:
        """After a module call: packs what nonlinear operations inside it saved. What is not found stays as it is.

        measured: is this step?
        """
        if self.operations is None or not call.values:
            return
        observing = measured()
        for operation, node, held in self.operations.found(call.module, call.name, output, call.values, call.since):
            operation.observing = observing
            noise = {slot: bound for slot, handle in held.items() if (bound := self._relax(operation, handle, held, call.mode))}
            if observing and noise:
                self.operations.watch(operation, node, noise)

    def _relax(self, operation: Operation, handle: Handle, held: dict[str, Handle], mode: Mode) -> float | None:
        """Packs one input of a nonlinear operation; the bound that it may have, None where it must stay as it is."""
        entry = handle.entry
        flat = entry.alias
        if flat is None or self.operations is None:
            return None
        elements = sum(math.prod(other.shape) for other in held.values() if other.entry is entry)
        whole = 2 * elements * handle.dtype.itemsize >= entry.nbytes
        facts = TensorFacts(entry.nbytes, handle.dtype in LOSSY, whole)
        judged = decide(Use.NONLINEAR, facts, mode, self._minimum, 1.0)
        x = handle.view(flat)
        bound = operation.bound_for(x, self._target, self.operations.expected) if isinstance(judged, Lossy) else None
        verdict = decide(
            Use.NONLINEAR, facts, mode, self._minimum, bound, operation.name in self._account.held and not operation.observing
        )
        if not isinstance(verdict, Lossy):
            entry.reason = verdict.reason if isinstance(verdict, KeepPlain) else entry.reason
            return None
        if operation.observing:
            operation.see_input(x, verdict.bound)
        self.ledger.relaxed(handle)
        self._keeping.within(verdict.bound, entry, flat, operation)
        return verdict.bound

    def _settle_indices(self, handle: Handle, extent: tuple[int, ...], window: Window) -> None:
        entry = handle.entry
        if entry.whole or entry.alias is None:
            return
        copy = window_indices(handle.view(entry.alias), extent, window)
        if math.prod(handle.shape) * 8 == entry.nbytes:
            entry.replace(copy, entry.alias, exact=True)

    def _use(self, t: Tensor, call: Call) -> Use:
        weight = call.module._parameters.get("weight") if call.input is not None else None
        if weight is not None and is_input_of(t, call.input, weight):
            return Use.WEIGHT_GRADIENT if call.site is not None else Use.SHAPE
        if is_own_relu_save(t):
            return Use.SIGN
        return Use.INDICES if _may_be_indices(t, call.last) else Use.VALUES

    def unpack(self, handle: Handle | PlainTensor) -> Tensor:
        """Raises RuntimeError where plain autograd would: the tensor was changed in place meanwhile; DecodeFailed or an error for
        want of memory where a copy cannot be read.
        """
        if self.offloading is not None:
            self.offloading.opening(handle)
        try:
            t = self.ledger.open(handle)
        except (DecodeFailed, MemoryError, torch.cuda.OutOfMemoryError) as error:
            self._figures.count_raw(f"DecodeFailed{type(error.__cause__).__name__}")
            raise
        if isinstance(handle, PassedTensor):
            self._passed.read(handle)
        if self.offloading is not None:
            self.offloading.opened()
        return t if self.operations is None else self.operations.noise.added(handle, t)


def _may_be_indices(t: Tensor, last: Saved | None) -> bool:
    """Max-pooling saves its input and then, as the next, its indices: whole numbers, of the same leading dimensions."""
    if last is None or t.dtype != torch.int64 or t.dim() != len(last.handle.shape):
        return False
    return bool(t.shape[:-3] == last.handle.shape[:-3] and t.numel() <= math.prod(last.handle.shape))
