"""Rows that no test could verify, as of nodes that only GPUs make, are tried in the process before anything relies on them.

The node that was just made computes its gradients a few times more, with something else where a tensor of it was saved. That is
done while the forward pass runs and the node's tensors are there, with gradients drawn at random: those of a training may all be
zero in its first step. What a training has, its gradients, hooks and random state, takes no part.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final

import torch

from kompakt_runtime.compat.graph import asked_for, current_node, first_result, held
from kompakt_runtime.uses.consumption import Consumption
from kompakt_runtime.uses.reads import Read
from kompakt_runtime.uses.response import Gradients, Response, agrees, response
from kompakt_runtime.uses.tried import DISAGREES, UNTRIED, Tried

Tensor = Any
Node = Any
Handle = Any
TRIES: Final = 3  # then it stays untried: memory may have been short, or what was saved all zero

# A row and which gradients are asked for, as not all of them are made for every node.
Place = tuple[str, str, tuple[int, ...]]


class Substitutes(threading.local):
    """What stands for the tensors of one node while its backward function runs once more."""

    def __init__(self) -> None:
        self._put: tuple[Handle, Tensor] | None = None

    def run(self, node: Node, deltas: Gradients, handle: Handle, t: Tensor) -> Gradients:
        """The node's gradients with `t` where the handle's tensor was saved; the node is as it was afterwards."""
        self._put = (handle, t)
        try:
            with torch.no_grad():
                made = node(*deltas)
        finally:
            self._put = None
        return made if isinstance(made, tuple) else (made,)

    @property
    def running(self) -> bool:
        """Does a node run once more on this thread?"""
        return self._put is not None

    def of(self, handle: Handle) -> Tensor | None:
        """For the unpack function: what it shall give instead of the handle's tensor."""
        return self._put[1] if self._put is not None and self._put[0] is handle else None


def looked_at(node: Node, results: Sequence[Any], handle: Handle, exact: Tensor, substitutes: Substitutes) -> Response:
    """What moves when something else stands where the handle's tensor, `exact`, was saved.

    results: what is like the node's results in shape, type and device; None for those that are given no gradient.
    """
    deltas = tuple(None if one is None else _drawn(one) for one in results)
    with torch.autocast(exact.device.type, enabled=False):  # as in a backward pass
        return response(lambda t: substitutes.run(node, deltas, handle, t), exact)


def _drawn(like: Any) -> Tensor:
    draw = torch.Generator(like.device).manual_seed(1)
    return torch.empty(tuple(like.shape), dtype=like.dtype, device=like.device).normal_(generator=draw)


class Verdicts:
    """What trials found out. `tries` counts those that told nothing."""

    def __init__(self) -> None:
        self.lock = threading.Lock()  # replicas on threads of their own: each row is tried by one of them
        self.doubts: dict[Place, str] = {}
        self.tries: dict[Place, int] = {}

    def add(self, place: Place, doubt: str) -> None:
        """What one trial says; the caller has the lock."""
        self.tries[place] = self.tries.get(place, 0) + 1
        if doubt != UNTRIED or self.tries[place] >= TRIES:
            self.doubts[place] = doubt


# Table, torch and machine are the same for all sessions of a process.
PROCESS: Final = Verdicts()


class Trials:
    """Tries each row once, when it is used first."""

    def __init__(
        self,
        exact: Callable[[Handle], Tensor | None],
        told: Callable[[Tried], None],
        failed: Callable[[str], None],
        verdicts: Verdicts = PROCESS,
    ) -> None:
        """exact: what a handle stands for, None where that is not there itself; told: called with each trial that ran; failed:
        counts a reason for which one could not.
        """
        self._exact, self._told, self._failed, self._verdicts = exact, told, failed, verdicts
        self.substitutes = Substitutes()

    def doubt(self, use: Consumption) -> str:
        """Why nothing may rely on what the table says of this use; "" where it holds here."""
        results = first_result(use.node)
        if results:
            return self._known_or_tried(use, results)
        known = self._verdicts.doubts.get(_place(use))
        if known is None:  # the gradients that its backward function is given tell the shapes; what comes later can be packed
            use.node.register_hook(partial(self._in_backward, use.slot, use.read, use.gradients))
        return UNTRIED if known is None else known

    def _in_backward(self, slot: str, read: Read | None, gradients: tuple[int, ...], made: Gradients, deltas: Gradients) -> None:
        """Named by slot: a hook that held handles would keep the node, which holds the hook."""
        node = current_node()
        if all(made[number] is not None for number in asked_for(node)):  # else somebody asked for some of them only
            for handle in held(node, slot):
                self._known_or_tried(Consumption(handle, node, slot, read, gradients=gradients), deltas)

    def _known_or_tried(self, use: Consumption, results: Sequence[Any]) -> str:
        with self._verdicts.lock:
            known = self._verdicts.doubts.get(_place(use))
            return self._tried(use, results) if known is None else known

    def _tried(self, use: Consumption, results: Sequence[Any]) -> str:
        exact = self._exact(use.handle)
        if exact is None or (exact.is_cuda and torch.cuda.is_current_stream_capturing()):
            return UNTRIED  # another time: while a graph is captured nothing can be read back
        begun = time.perf_counter()
        doubt = self._judged(use, results, exact)
        self._told(Tried(use.place, doubt, time.perf_counter() - begun))
        self._verdicts.add(_place(use), doubt)
        return doubt

    def _judged(self, use: Consumption, results: Sequence[Any], exact: Tensor) -> str:
        try:
            if not bool(exact.isfinite().all() & exact.any()):
                return UNTRIED
            with torch.no_grad(), _random_state_kept(exact):
                seen = looked_at(use.node, results, use.handle, exact, self.substitutes)
        except Exception as error:  # a trial must not end a training
            self._failed(f"TrialFailed{type(error).__name__}")
            return UNTRIED
        return _verdict(use, seen)


def _place(use: Consumption) -> Place:
    return use.node.name(), use.slot, asked_for(use.node)


def _verdict(use: Consumption, seen: Response) -> str:
    if use.read is None or not agrees(use.read, use.gradients, seen):
        return DISAGREES
    return "" if seen.at_all or use.read is Read.SHAPE else UNTRIED


@contextlib.contextmanager
def _random_state_kept(t: Tensor) -> Iterator[None]:
    """No backward function that we know of draws numbers anew; this one is not known yet."""
    devices = [] if t.device.type == "cpu" else [t.device.index]
    with torch.random.fork_rng(devices, device_type=t.device.type if devices else "cuda"):
        yield
