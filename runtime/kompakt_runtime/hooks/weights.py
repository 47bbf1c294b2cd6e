"""Copies of weights in another type, as autocast makes them for each pass: the weights are there anyway, so are their copies."""

from typing import Any
from weakref import WeakSet

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from kompakt_runtime.compat.tensors import storage_key, version_of
from kompakt_runtime.hooks.deriving import Deriving
from kompakt_runtime.saved.derived import Derivation, Derived, cast_of_parameter
from kompakt_runtime.saved.entry import SavedStorage
from kompakt_runtime.saved.handle import Handle, PlainTensor
from kompakt_runtime.saved.ledger import StorageLedger

Tensor = Any


class CastWeights:
    """Which of them are made again, in the backward pass or just before the weights change."""

    def __init__(self, ledger: StorageLedger, deriving: Deriving) -> None:
        self._ledger, self._deriving = ledger, deriving
        self._living: WeakSet[SavedStorage] = WeakSet()
        # By weight: its last copy, and the weight's version when that was seen first. The reference keeps the key from being
        # used again.
        self._seen: dict[int, tuple[StorageWeakRef, int]] = {}

    def handle(self, t: Tensor, layer: str, minimum: int) -> Handle | None:
        """None where `t` is something else, or stays."""
        if t.is_cuda and torch.cuda.is_current_stream_capturing():
            return None  # to compare would wait for the device
        derivation = cast_of_parameter(t, PlainTensor)
        if derivation is None or t.untyped_storage().nbytes() < minimum or not self._fresh(t, derivation.sources[0]):
            return None
        entry = self._ledger.entry(t)
        entry.layer = entry.layer or layer
        if not entry.same and not self._deriving.proved(entry, derivation):
            return None
        self._living.add(entry)
        return Handle(entry, t)

    def _fresh(self, t: Tensor, weight: PlainTensor) -> bool:
        """Autocast uses a copy again as long as its context lasts, whatever becomes of the weight meanwhile."""
        key = storage_key(weight.tensor)
        known, version = self._seen.get(key, (None, 0))
        if known is None or known.cdata != storage_key(t):
            version = version_of(weight.tensor)
            self._seen[key] = StorageWeakRef(t.untyped_storage()), version
        return version == version_of(weight.tensor)

    def before_step(self) -> None:
        """A graph that is read after the optimizer's step, as in plain autograd, needs the copies of before."""
        for entry in list(self._living):
            if isinstance(entry.copy, Derived) and _current(entry.copy.derivation):
                entry.computed(entry.copy.decode().clone())  # at version zero again, as the handles expect
                entry.demand.reason = "WeightStepped"


def _current(derivation: Derivation) -> bool:
    weight: PlainTensor = derivation.sources[0]
    return version_of(weight.tensor) == weight.version
