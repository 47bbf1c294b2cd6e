"""Counts live bytes while operations run, as a GPU's caching allocator does; on CPUs torch keeps no such count."""

from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

LEAST = 4096  # bytes of a storage that counts: there are many smaller ones, and they sum up to nothing


class LiveBytes(TorchDispatchMode):
    """Storages that operations made while this mode was on, after each operation; what lives inside one only is not seen."""

    def __init__(self) -> None:
        super().__init__()
        self._known: dict[int, tuple[StorageWeakRef, int]] = {}
        self.peak = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        made = [t for t in tree_leaves(result) if isinstance(t, torch.Tensor) and t.layout == torch.strided]
        if sum(map(self._notice, made)):
            self.peak = max(self.peak, self.live())
        return result

    def _notice(self, t: torch.Tensor) -> bool:
        storage = t.untyped_storage()
        known = self._known.get(storage._cdata)
        if storage.nbytes() < LEAST or not (known is None or known[0].expired()):
            return False
        self._known[storage._cdata] = (StorageWeakRef(storage), int(storage.nbytes()))
        return True

    def live(self) -> int:
        self._known = {key: row for key, row in self._known.items() if not row[0].expired()}
        return sum(nbytes for _, nbytes in self._known.values())
