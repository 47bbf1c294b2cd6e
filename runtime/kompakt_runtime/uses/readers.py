"""Finds the readers of saved tensors while forward passes run: what pack hooks and module hooks call."""

import threading
from collections.abc import Callable, Iterable
from typing import Any

from kompakt_runtime.compat.graph import saved_for, youngest
from kompakt_runtime.uses.consumption import Consumption
from kompakt_runtime.uses.unresolved import Unresolved
from kompakt_runtime.uses.walk import roots

Handle = Any
Node = Any
Tensor = Any


class _Thread(threading.local):
    """Replicas of a model run on threads of their own, with node numbers of their own."""

    def __init__(self) -> None:
        self.unresolved = Unresolved()


class Readers:
    """settle: called once for each node that reads handles, with all of these; left: for each whose reader never showed."""

    def __init__(self, settle: Callable[[list[Consumption]], None], left: Callable[[Handle], None]) -> None:
        self._settle, self._left = settle, left
        self._here = _Thread()

    def packing(self, t: Tensor) -> None:
        """`t` is about to be saved: what led to it can be reached from it."""
        if t.grad_fn is not None:
            self._tell([t.grad_fn], saved_for(t))

    def packed(self, t: Tensor, handle: Handle) -> None:
        """The handle goes to the node that saves `t`."""
        self._here.unresolved.add(handle, saved_for(t))

    def returned(self, output: Any, outermost: bool) -> None:
        """A module returned this. After the outermost one nobody waits any longer."""
        self._tell(roots(output), youngest() + 1)
        if outermost:
            for handle in self._here.unresolved.rest():
                self._left(handle)

    def abandon(self) -> None:
        """The forward pass of this thread ended without its hooks, as an interrupt ends it."""
        self._here.unresolved.rest()

    @property
    def waiting(self) -> int:
        """Saved tensors of this thread whose reader is not known yet."""
        return len(self._here.unresolved)

    def _tell(self, nodes: Iterable[Node], unfinished: int) -> None:
        for uses in self._here.unresolved.reached(nodes, unfinished):
            self._settle(uses)
