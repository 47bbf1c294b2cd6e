"""Saved-tensor hooks that note what each saved tensor is read for, as soon as that can be known."""

from dataclasses import dataclass
from typing import Any
from weakref import ref

from torch.autograd.graph import saved_tensors_hooks

from kompakt_runtime.compat import graph
from kompakt_runtime.uses.consumption import Consumption
from kompakt_runtime.uses.readers import Readers
from kompakt_runtime.uses.reads import Read
from kompakt_runtime.uses.trials import Substitutes


class Box:
    """A handle. `t` has no history: with one it would hold the node that holds the box."""

    def __init__(self, t: Any) -> None:
        self.t = t.detach()


@dataclass(frozen=True, eq=False)
class Told:
    """What became known of one saved tensor."""

    place: str
    read: Read | None
    shape: tuple[int, ...]
    parameter: Any


class Recorder:
    """waited: the largest number of saved tensors that waited at a time; left: shapes of those that waited to the end."""

    def __init__(self) -> None:
        self.readers = Readers(lambda uses: self.told.extend(map(_told, uses)), lambda box: self.left.append(tuple(box.t.shape)))
        self.substitutes = Substitutes()
        self.told: list[Told] = []
        self.waited = 0
        self._boxes: list[ref[Box]] = []
        self.left: list[tuple[int, ...]] = []
        self._hooks: Any = None

    def __enter__(self) -> "Recorder":
        self._hooks = saved_tensors_hooks(self._pack, graph.noting(self._unpack))
        self._hooks.__enter__()
        return self

    def __exit__(self, *problem: Any) -> None:
        self._hooks.__exit__(*problem)

    def end(self, *outputs: Any) -> None:
        """A module returned these."""
        self.readers.returned(outputs, outermost=True)

    @property
    def saved(self) -> int:
        return len(self._boxes)

    def alive(self) -> int:
        """How many of the saved tensors are still held."""
        return sum(box() is not None for box in self._boxes)

    def reads(self, place: str) -> list[Read | None]:
        return [told.read for told in self.told if told.place == place]

    def _pack(self, t: Any) -> Box:
        self.readers.packing(t)
        box = Box(t)
        self._boxes.append(ref(box))
        self.readers.packed(t, box)
        self.waited = max(self.waited, self.readers.waiting)
        return box

    def _unpack(self, box: Box) -> Any:
        other = self.substitutes.of(box)
        return box.t if other is None else other


def _told(use: Consumption) -> Told:
    return Told(use.place, use.read, tuple(use.handle.t.shape), use.parameter)
