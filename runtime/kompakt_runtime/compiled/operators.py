"""The operators that compiled graphs call: `kompakt::pack` in the forward graph, `kompakt::unpack` in the backward graph.

What is packed has no size that a graph could know, so it does not pass through the graph: `pack` keeps it here and returns a
ticket, one number on the CPU, and `unpack` reads by it. What is kept ends with its ticket, so with whatever autograd does to
that. Graphs that were compiled by another process hold these operators too, so all that they need is in their arguments.
"""

import threading
from collections import deque
from collections.abc import Sequence
from typing import Any, Final, Protocol
from weakref import finalize

import torch
from torch import Tensor

from kompakt_runtime.compat.hooks import Pair, innermost

# For `beside`: the graph has said it already, with an earlier value.
LATER: Final = -1
# Optimizer steps for which a value waits whose ticket tells nothing of its end; several optimizers may step in turn.
LASTS: Final = 16
# What is handed over is not copied first into the layout that it has without the compiler.
ANY_LAYOUT: Final = (torch.Tag.flexible_layout,)


class HandedOver(Protocol):
    """What is kept of one value."""

    def read(self, deltas: Sequence[Any], first: int) -> Any:
        """The value. deltas: gradients at the outputs of those that read this copy; first: the number of the first of these."""

    def read_again(self, inputs: Sequence[Any], tickets: Sequence[int], program: str) -> Any:
        """The value. inputs, tickets, program: as of `unpack_read`."""

    def look(self) -> Any:
        """The value, as it is read; nothing is counted."""


class ValueKeeper(Protocol):
    """A session, as far as compiled code meets it. Never raises."""

    def keep(self, x: Any, views: Sequence[Any], how: str, beside: int) -> HandedOver: ...
    def keep_read(self, x: Any, views: Sequence[Any], place: str, beside: int) -> HandedOver: ...
    def owns(self, pair: Pair) -> bool:
        """Are these saved-tensor hooks the session's own?"""
        ...


class _Whole:
    """A copy of it all: nothing is compressed now."""

    def __init__(self, x: Any) -> None:
        self._copy = x.detach().clone()

    def read(self, deltas: Sequence[Any], first: int) -> Any:
        return self._copy.clone()

    def read_again(self, inputs: Sequence[Any], tickets: Sequence[int], program: str) -> Any:
        return self._copy.clone()

    def look(self) -> Any:
        return self._copy


class Tickets:
    """What is kept now, by number. keeper: of the session that runs, None where none does."""

    def __init__(self) -> None:
        self.keeper: ValueKeeper | None = None
        self.given = 0  # so far
        self._before: deque[int] = deque(maxlen=LASTS)  # how many were, at each of the last optimizer steps
        self._kept, self._lock = dict[int, HandedOver](), threading.Lock()
        self._copied: dict[int, int] = {}  # readers still to come, of what does not end with its ticket

    def __len__(self) -> int:
        return len(self._kept)

    def give(self, x: Any, views: Sequence[Any], how: str, beside: int) -> Any:
        """The ticket for what is kept of `x`."""
        keeper = self.keeper  # another thread may end the session
        return self._ticket(_Whole(x) if keeper is None else keeper.keep(x, views, how, beside), keeper, len(views))

    def give_read(self, x: Any, views: Sequence[Any], place: str, beside: int) -> Any:
        """As `give`, of what is read once, for gradients that go on."""
        keeper = self.keeper
        return self._ticket(_Whole(x) if keeper is None else keeper.keep_read(x, views, place, beside), keeper, 1)

    def _ticket(self, kept: HandedOver, keeper: ValueKeeper | None, readers: int) -> Any:
        copied = hooks_copy(keeper)
        with self._lock:
            self.given += 1
            number = self.given
            self._kept[number] = kept
            if copied:
                self._copied[number] = readers
        ticket = torch.tensor(number)
        if not copied:
            finalize(ticket, self._kept.pop, number, None).atexit = False
        return ticket

    def read(self, ticket: Any, deltas: Sequence[Any], first: int) -> Any:
        """What the ticket is for. Raises RuntimeError where it is gone."""
        found = self._of(ticket).read(deltas, first)
        self._was_read(int(ticket), len(deltas))
        return found

    def read_again(self, ticket: Any, inputs: Sequence[Any], tickets: Sequence[int], program: str) -> Any:
        """As `read`, of what `give_read` gave."""
        found = self._of(ticket).read_again(inputs, tickets, program)
        self._was_read(int(ticket), 1)
        return found

    def look(self, ticket: Any) -> Any:
        """What the ticket is for, which is read by somebody else."""
        return self._of(ticket).look()

    def _of(self, ticket: Any) -> HandedOver:
        kept = self._kept.get(int(ticket))
        if kept is None:
            raise RuntimeError(
                "kompakt: a value of compiled code is gone: it ends with its ticket, which saved-tensor hooks copied, or when it "
                "was read. Run this part of the model outside of these hooks, or uncompiled"
            )
        return kept

    def _was_read(self, number: int, times: int) -> None:
        with self._lock:
            if number in self._copied:
                self._copied[number] -= times
                if self._copied[number] <= 0:
                    self._drop(number)

    def stepped(self) -> None:
        """An optimizer step is over. What was handed over LASTS steps ago and not read is read no more."""
        with self._lock:
            first = self._before[0] if len(self._before) == LASTS else 0
            for number in [number for number in self._copied if number <= first]:
                self._drop(number)
            self._before.append(self.given)

    def _drop(self, number: int) -> None:
        del self._copied[number]
        self._kept.pop(number, None)


def hooks_copy(keeper: ValueKeeper | None) -> bool:
    """May what autograd gives back be another tensor than the ticket? Checkpoints drop it and run the forward pass once more."""
    pair = innermost()
    if pair is None or (keeper is not None and keeper.owns(pair)):
        return False
    return getattr(pair[0], "__module__", "") != "torch.utils.checkpoint"


TICKETS = Tickets()


@torch.library.custom_op("kompakt::pack", mutates_args=(), tags=ANY_LAYOUT)  # type: ignore[untyped-decorator]
def pack(x: Tensor, views: Sequence[Tensor], how: str, beside: int) -> Tensor:
    """A ticket for `x`. views: of the parameters whose gradients are made of it; how: as weight_gradients.to_text; beside: bytes
    that the same graph keeps as they are, said with its first value; LATER with others.
    """
    return TICKETS.give(x, views, how, beside)


@pack.register_fake  # type: ignore[untyped-decorator]
def _(x: Tensor, views: Sequence[Tensor], how: str, beside: int) -> Tensor:
    return torch.empty((), dtype=torch.int64, device="cpu")


@torch.library.custom_op("kompakt::unpack", mutates_args=(), tags=ANY_LAYOUT)  # type: ignore[untyped-decorator]
def unpack(ticket: Tensor, deltas: Sequence[Tensor], first: int, rows: int, tail: Sequence[int], order: Sequence[int]) -> Tensor:
    """What the ticket is for: as many rows as the first of `deltas` has in its dimension `rows`, each of the sizes `tail`, with
    dimensions in this order in memory, outermost first. So no batch size is in a graph. deltas, first: as of HandedOver.read.
    """
    return _laid_out(TICKETS.read(ticket, deltas, first), empty(deltas[0], rows, tail, order), order)


def _laid_out(found: Tensor, like: Tensor, order: Sequence[int]) -> Tensor:
    """With these sizes and this order in memory."""
    if found.dtype == like.dtype and found.numel() == like.numel() and order == sorted(order) and found.is_contiguous():
        return found.view(like.shape)
    return like.copy_(found.reshape(like.shape))


@unpack.register_fake  # type: ignore[untyped-decorator]
def _(ticket: Tensor, deltas: Sequence[Tensor], first: int, rows: int, tail: Sequence[int], order: Sequence[int]) -> Tensor:
    return empty(deltas[0], rows, tail, order)


@torch.library.custom_op("kompakt::pack_read", mutates_args=(), tags=ANY_LAYOUT)  # type: ignore[untyped-decorator]
def pack_read(x: Tensor, views: Sequence[Tensor], place: str, beside: int) -> Tensor:
    """A ticket for `x`, of which gradients are made that go on. views: of parameters, by which it is known where it is read;
    place: as places.to_text; beside: as of `pack`.
    """
    return TICKETS.give_read(x, views, place, beside)


@pack_read.register_fake  # type: ignore[untyped-decorator]
def _(x: Tensor, views: Sequence[Tensor], place: str, beside: int) -> Tensor:
    return torch.empty((), dtype=torch.int64, device="cpu")


@torch.library.custom_op("kompakt::unpack_read", mutates_args=(), tags=ANY_LAYOUT)  # type: ignore[untyped-decorator]
def unpack_read(
    ticket: Tensor,
    inputs: Sequence[Tensor],
    tickets: Sequence[int],
    program: str,
    sizes: Sequence[int],
    order: Sequence[int],
    kind: str,
    like: int,
) -> Tensor:
    """What the ticket is for: of these sizes and this type, with dimensions in this order in memory. inputs: what the backward
    graph makes gradients of beside it, as `program` tells; tickets: which of these are no more than that; like: which of them is
    on the value's device.
    """
    return _laid_out(TICKETS.read_again(ticket, inputs, tickets, program), _empty_as(inputs, sizes, order, kind, like), order)


@unpack_read.register_fake  # type: ignore[untyped-decorator]
def _(
    ticket: Tensor,
    inputs: Sequence[Tensor],
    tickets: Sequence[int],
    program: str,
    sizes: Sequence[int],
    order: Sequence[int],
    kind: str,
    like: int,
) -> Tensor:
    return _empty_as(inputs, sizes, order, kind, like)


def _empty_as(inputs: Sequence[Any], sizes: Sequence[int], order: Sequence[int], kind: str, like: int) -> Any:
    back = sorted(range(len(order)), key=lambda i: order[i])
    return inputs[like].new_empty([sizes[i] for i in order], dtype=getattr(torch, kind)).permute(back)


def empty(delta: Any, rows: int, tail: Sequence[int], order: Sequence[int]) -> Any:
    """Of the type of the output's gradient: what a product or a convolution reads together with it has no other."""
    sizes = [delta.shape[rows], *tail]
    back = sorted(range(len(order)), key=lambda i: order[i])
    return delta.new_empty([sizes[i] for i in order]).permute(back)


PACK = torch.ops.kompakt.pack.default
UNPACK = torch.ops.kompakt.unpack.default
PACK_READ = torch.ops.kompakt.pack_read.default
UNPACK_READ = torch.ops.kompakt.unpack_read.default
