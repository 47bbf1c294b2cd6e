"""What plain autograd keeps for one backward pass, seen by hooks of our own: how much, and for which operations."""

import gc
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final
from weakref import WeakSet

import torch

Tensor = Any

# What lies between a weight and the copy in another type that autocast makes of it.
PASSING: Final = frozenset(("ToCopyBackward0", "TBackward0", "TransposeBackward0", "ViewBackward0", "PermuteBackward0"))


@dataclass(frozen=True)
class Kept:
    """In bytes of unique storages, without those of weights, buffers and the batch.

    weights: of `total`, copies of weights in another type, as autocast makes them; largest: what the operation with most
    operands reads, `node` its name; readers: by the names of all operations that read a storage.
    """

    total: int
    weights: int
    largest: int
    node: str
    readers: dict[str, int] = field(default_factory=dict)


class Saved:
    """What autograd gets from us instead of a tensor; alive as long as autograd keeps it."""

    __slots__ = ("__weakref__", "nbytes", "storage", "tensor", "weight")

    def __init__(self, t: Tensor) -> None:
        storage = t.untyped_storage()
        self.storage, self.nbytes = int(storage._cdata), int(storage.nbytes())
        self.weight = copies_weight(t)
        self.tensor = t.detach()


class Operands:
    """Which operation of a backward pass reads which storages."""

    def __init__(self, left_out: frozenset[int]) -> None:
        self._left_out = left_out
        self._read: defaultdict[tuple[str, int], dict[int, int]] = defaultdict(dict)

    def read(self, saved: Saved) -> None:
        node = torch._C._current_autograd_node()  # None where a user's own code unpacks outside of a backward pass
        if node is not None and saved.storage not in self._left_out:
            self._read[node.name(), node._sequence_nr()][saved.storage] = saved.nbytes

    def largest(self) -> tuple[int, str]:
        return max(((sum(storages.values()), name) for (name, _), storages in self._read.items()), default=(0, ""))

    def readers(self) -> dict[str, int]:
        """Bytes by the names of those that read them, most first."""
        names: defaultdict[int, set[str]] = defaultdict(set)
        nbytes: dict[int, int] = {}
        for (name, _), storages in self._read.items():
            nbytes |= storages
            for storage in storages:
                names[storage].add(name)
        found: Counter[str] = Counter()
        for storage, readers in names.items():
            found[" + ".join(sorted(readers))] += nbytes[storage]
        return dict(found.most_common())


def copies_weight(t: Tensor) -> bool:
    node = t.grad_fn
    while node is not None and node.name() in PASSING:
        node = node.next_functions[0][0]
    return node is not None and bool(node.name() == "torch::autograd::AccumulateGrad")


def storages(tensors: Iterable[Tensor]) -> frozenset[int]:
    return frozenset(int(t.untyped_storage()._cdata) for t in tensors)


def kept_by_autograd(loss: Callable[[], Tensor], left_out: frozenset[int]) -> Kept:
    """Of a whole pass forward, the loss in it; the pass backward follows, to see who reads what.

    left_out: storages that somebody holds anyway.
    """
    alive: WeakSet[Saved] = WeakSet()
    operands = Operands(left_out)

    def pack(t: Tensor) -> Saved:
        saved = Saved(t)
        alive.add(saved)
        return saved

    def unpack(saved: Saved) -> Tensor:
        operands.read(saved)
        return saved.tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        result = loss()
    gc.collect()  # graphs that nothing will be asked of may hang in cycles
    unique = {saved.storage: saved for saved in alive if saved.storage not in left_out}
    total = sum(saved.nbytes for saved in unique.values())
    weights = sum(saved.nbytes for saved in unique.values() if saved.weight)
    del unique
    result.backward()
    return Kept(total, weights, *operands.largest(), operands.readers())
