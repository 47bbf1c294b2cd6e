"""Module calls in progress, and what becomes known of each while it runs."""

import sys
import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import torch

from kompakt_runtime.config import Mode
from kompakt_runtime.offload.schedule import Item

Tensor = Any
CALL: Final = torch.nn.Module._call_impl.__code__


@dataclass(eq=False)
class Call:
    """One module call in progress. `mode` as asked for this module; outermost: the module whose call our hooks were entered with.

    exact: gradients of activations must not be off in this forward pass;
    enters: our hooks were entered with it; refuses: they must not be, here or in any module below; suspended: they are
    left while it runs. given: how many values compiled code had handed over before it. state: of the user's random numbers
    before a dropout that may be replayed. kinds: how many nonlinear operations of each kind were found in it; leaving: what may
    go to host memory after it.
    """

    module: Any
    mode: Mode
    name: str = ""
    outermost: Any = None
    exact: bool = False
    enters: bool = False
    refuses: bool = False
    suspended: bool = False
    state: Tensor = None
    given: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    leaving: list[Item] = field(default_factory=list)


class Thread(threading.local):
    """Per thread: hooks act only where they were entered, and replicas of a model run on threads of their own.

    entered: our hooks were, with one of the calls; own, gathers: what own_storages says of that one's module; exact: as of its
    calls.
    """

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.entered = False
        self.own: frozenset[int] = frozenset()
        self.gathers = False
        self.exact = False


def calls_on_the_stack(module: Any) -> int:
    """How many calls of this module are in progress on this thread."""
    frame, found = sys._getframe(), 0
    while frame.f_back is not None:
        frame = frame.f_back
        found += frame.f_code is CALL and frame.f_locals.get("self") is module
    return found


def keywords(module: Any) -> Mapping[str, Any]:
    """What this module's call in progress was given by name. Hooks for all modules are not told, in any version of torch."""
    frame = sys._getframe()
    while frame.f_back is not None:
        frame = frame.f_back
        if frame.f_code is CALL and frame.f_locals.get("self") is module:
            return dict(frame.f_locals["kwargs"])
    return {}


def wants_gradient(argument: Any) -> bool:
    """Is there a leaf that requires a gradient among these arguments (in tuples, lists, dicts)?"""
    if isinstance(argument, torch.Tensor):
        return argument.requires_grad and argument.grad_fn is None
    if isinstance(argument, Mapping):
        argument = tuple(argument.values())
    return isinstance(argument, tuple | list) and any(map(wants_gradient, argument))
