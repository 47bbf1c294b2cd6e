"""Tensors that pass through outside of the ledger: what they take counts in the ratio, once for each storage."""

from collections.abc import Callable
from typing import Any
from weakref import WeakValueDictionary

from torch.multiprocessing.reductions import StorageWeakRef

from kompakt_runtime.saved.handle import PlainTensor
from kompakt_runtime.saved.ledger import StorageLedger

Tensor = Any


class PassedStorage:
    """As long as a graph holds one of its tensors. The weak reference keeps the address, its key, from being used again."""

    __slots__ = ("__weakref__", "counted", "module", "nbytes", "reason", "share", "storage")

    def __init__(self, storage: StorageWeakRef | None, nbytes: int, reason: str, module: str) -> None:
        self.storage = storage
        self.nbytes, self.reason, self.module, self.counted = nbytes, reason, module, False
        self.share: Any = None  # of what is held, as Holding counts it

    @property
    def held_bytes(self) -> int:
        return self.nbytes

    @property
    def layer(self) -> str:
        return self.reason


class PassedTensor(PlainTensor):
    """Autograd's handle for one that is counted when a backward pass reads it first."""

    __slots__ = ("passed",)

    def __init__(self, t: Tensor, passed: PassedStorage) -> None:
        super().__init__(t)
        self.passed = passed


class Passed:
    """The living ones, by storage."""

    def __init__(self, ledger: StorageLedger, count: Callable[[str, int, str], None]) -> None:
        """count: a reason, bytes that plain autograd keeps and we too, and the module that saved them."""
        self._ledger, self._count = ledger, count
        self._storages: WeakValueDictionary[int, PassedStorage] = WeakValueDictionary()

    def handle(self, t: Tensor, reason: str, module: str = "") -> PassedTensor:
        storage = _storage(t)
        if storage is None:
            return PassedTensor(t, PassedStorage(None, t.numel() * t.element_size(), reason, module))
        reference = StorageWeakRef(storage)
        found = self._storages.get(reference.cdata)
        if found is None:
            found = self._storages[reference.cdata] = PassedStorage(reference, int(storage.nbytes()), reason, module)
        return PassedTensor(t, found)

    def read(self, handle: PassedTensor) -> None:
        """A backward pass asked for it. What the ledger keeps as it is as well is counted there."""
        passed = handle.passed
        if passed.counted:
            return
        passed.counted = True
        entry = self._ledger.known(handle.tensor) if passed.storage is not None and _storage(handle.tensor) else None
        if entry is None or not entry.plain:
            self._count(passed.reason, passed.nbytes, passed.module)


def _storage(t: Tensor) -> Any:
    """Where a tensor's numbers lie, of a sharded one this rank's; None where that cannot be told, as of sparse ones."""
    try:
        storage = (t.detach().to_local() if hasattr(t, "to_local") else t).untyped_storage()
        return storage if storage.nbytes() else None
    except (RuntimeError, NotImplementedError):
        return None
