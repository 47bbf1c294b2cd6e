"""Module calls in progress, and what was saved in each that is settled only when it ends."""

import sys
import threading
from dataclasses import dataclass, field
from typing import Any, Final

import torch

from kompakt_runtime.ledger import Handle
from kompakt_runtime.offload import Item
from kompakt_runtime.sites import Site

Tensor = Any
CALL: Final = torch.nn.Module._call_impl.__code__


@dataclass(eq=False)
class Call:
    """One module call in progress. `site` only for trainable linear layers, `input` for frozen ones too; `mode` as asked for
    this module.

    enters: our hooks were entered with it; refuses: they must not be, here or in any module below; suspended: they are
    left while it runs. state: of the user's random numbers before a dropout that may be replayed. last: what was saved before,
    if it may be the input of a pooling operation; pools: such pairs. since: autograd's number when the call began; values: what
    was saved in it exactly and may be the input of a nonlinear operation; leaving: what may go to host memory after it.
    """

    module: Any
    mode: Any
    name: str = ""
    site: Site | None = None
    input: Tensor = None
    enters: bool = False
    refuses: bool = False
    suspended: bool = False
    state: Tensor = None
    last: "Saved | None" = None
    since: int = 0
    values: list[Handle] = field(default_factory=list)
    pools: "list[tuple[Saved, Handle]]" = field(default_factory=list)
    leaving: list[Item] = field(default_factory=list)


@dataclass(frozen=True, eq=False)
class Saved:
    """`made`: sequence number of the operation that made the tensor; those that save it are younger."""

    handle: Handle
    made: int


class Thread(threading.local):
    """Per thread: hooks act only where they were entered, and replicas of a model run on threads of their own.

    entered: our hooks were, with one of the calls; own, gathers: what own_storages says of that one's module.
    """

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.entered = False
        self.own: frozenset[int] = frozenset()
        self.gathers = False


def calls_on_the_stack(module: Any) -> int:
    """How many calls of this module are in progress on this thread."""
    frame, found = sys._getframe(), 0
    while frame.f_back is not None:
        frame = frame.f_back
        found += frame.f_code is CALL and frame.f_locals.get("self") is module
    return found
