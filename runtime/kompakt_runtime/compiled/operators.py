"""The operators that compiled graphs call: `kompakt::pack` in the forward graph, `kompakt::unpack` in the backward graph.

What is packed has no size that a graph could know, so it does not pass through the graph: `pack` keeps it here and returns a
ticket, one number on the CPU, and `unpack` reads by it. What is kept ends with its ticket, so with whatever autograd does to
that. Graphs that were compiled by another process hold these operators too, so all that they need is in their arguments.
"""

import threading
from collections.abc import Sequence
from typing import Any, Final, Protocol
from weakref import finalize

import torch
from torch import Tensor

# For `beside`: the graph has said it already, with an earlier value.
LATER: Final = -1


class HandedOver(Protocol):
    """What is kept of one value."""

    def read(self, deltas: Sequence[Any], first: int) -> Any:
        """The value. deltas: gradients at the outputs of those that read this copy; first: the number of the first of these."""


class ValueKeeper(Protocol):
    """A session, as far as compiled code meets it. Never raises."""

    def keep(self, x: Any, views: Sequence[Any], how: str, beside: int) -> HandedOver: ...


class _Whole:
    """A copy of it all: nothing is compressed now."""

    def __init__(self, x: Any) -> None:
        self._copy = x.detach().clone()

    def read(self, deltas: Sequence[Any], first: int) -> Any:
        return self._copy.clone()


class Tickets:
    """What is kept now, by number. keeper: of the session that runs, None where none does."""

    def __init__(self) -> None:
        self.keeper: ValueKeeper | None = None
        self.given = 0  # so far
        self._kept, self._lock = dict[int, HandedOver](), threading.Lock()

    def __len__(self) -> int:
        return len(self._kept)

    def give(self, x: Any, views: Sequence[Any], how: str, beside: int) -> Any:
        """The ticket for what is kept of `x`."""
        kept = _Whole(x) if self.keeper is None else self.keeper.keep(x, views, how, beside)
        with self._lock:
            self.given += 1
            number = self.given
            self._kept[number] = kept
        ticket = torch.tensor(number)
        finalize(ticket, self._kept.pop, number, None).atexit = False
        return ticket

    def kept(self, ticket: Any) -> HandedOver:
        return self._kept[int(ticket)]


TICKETS = Tickets()


@torch.library.custom_op("kompakt::pack", mutates_args=(), tags=(torch.Tag.flexible_layout,))  # type: ignore[untyped-decorator]
def pack(x: Tensor, views: Sequence[Tensor], how: str, beside: int) -> Tensor:
    """A ticket for `x`. views: of the parameters whose gradients are made of it; how: as weight_gradients.to_text; beside: bytes
    that the same graph keeps as they are, said with its first value; LATER with others.
    """
    return TICKETS.give(x, views, how, beside)


@pack.register_fake  # type: ignore[untyped-decorator]
def _(x: Tensor, views: Sequence[Tensor], how: str, beside: int) -> Tensor:
    return torch.empty((), dtype=torch.int64, device="cpu")


@torch.library.custom_op("kompakt::unpack", mutates_args=())  # type: ignore[untyped-decorator]
def unpack(ticket: Tensor, deltas: Sequence[Tensor], first: int, rows: int, tail: Sequence[int], order: Sequence[int]) -> Tensor:
    """What the ticket is for: as many rows as the first of `deltas` has in its dimension `rows`, each of the sizes `tail`, with
    dimensions in this order in memory, outermost first. So no batch size is in a graph. deltas, first: as of HandedOver.read.
    """
    like = empty(deltas[0], rows, tail, order)
    found = TICKETS.kept(ticket).read(deltas, first)
    if found.dtype == like.dtype and found.numel() == like.numel() and order == sorted(order) and found.is_contiguous():
        return found.view(like.shape)
    return like.copy_(found)


@unpack.register_fake  # type: ignore[untyped-decorator]
def _(ticket: Tensor, deltas: Sequence[Tensor], first: int, rows: int, tail: Sequence[int], order: Sequence[int]) -> Tensor:
    return empty(deltas[0], rows, tail, order)


def empty(delta: Any, rows: int, tail: Sequence[int], order: Sequence[int]) -> Any:
    """Of the type of the output's gradient: what a product or a convolution reads together with it has no other."""
    sizes = [delta.shape[rows], *tail]
    back = sorted(range(len(order)), key=lambda i: order[i])
    return delta.new_empty([sizes[i] for i in order]).permute(back)


PACK = torch.ops.kompakt.pack.default
UNPACK = torch.ops.kompakt.unpack.default
