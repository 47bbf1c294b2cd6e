"""Nodes of autograd's graph and what they hold. torch promises none of it, so it is asked for in one place."""

import threading
from collections.abc import Callable, Iterator
from typing import Any, Final

import torch

Tensor = Any
Node = Any
RAW: Final = "_raw_saved_"
CAST: Final = "ToCopyBackward0"
CLONE: Final = "CloneBackward0"
SLOTS_TOLD: Final = hasattr(torch._C._autograd.SavedTensor, "data")


def number_of(node: Node) -> int:
    """Nodes of one thread are numbered as they are made; gradient accumulators all have the largest number there is."""
    return int(node._sequence_nr())


def youngest() -> int:
    """The number of the node made last on this thread. While a tensor is packed that is the node that saves it, or a copy made
    for it (see `saved_for`).
    """
    return int(torch.autograd._get_sequence_nr()) - 1


def saved_for(t: Tensor) -> int:
    """While `t` is packed: the number of the node that saves it.

    An operation in place whose derivative reads its input saves a clone of that; the clone's node is one younger than its own.
    """
    last, made = youngest(), t.grad_fn
    cloned = made is not None and made.name() == CLONE and number_of(made) == last
    return last - 1 if cloned else last


def behind(node: Node) -> Iterator[Node]:
    """The nodes that this one hands gradients to."""
    return (next_ for next_, _ in node.next_functions if next_ is not None)


def asked_for(node: Node) -> tuple[int, ...]:
    """Numbers of the gradients that the node makes; the others nobody wants."""
    return tuple(number for number, (next_, _) in enumerate(node.next_functions) if next_ is not None)


def first_result(node: Node) -> tuple[Any, ...]:
    """Shape, type and device of the first of the node's results, and None for each of the others: statistics, or places.

    Empty in a torch that does not tell (2.4).
    """
    results = getattr(node, "_input_metadata", ())
    return (*results[:1], *(None for _ in results[1:]))


def cloned(t: Tensor) -> bool:
    """Is it a clone, as an operation in place saves one of its input?"""
    return t.grad_fn is not None and t.grad_fn.name() == CLONE


def parameter_at(node: Node, number: int) -> Tensor | None:
    """The leaf that gets this of the node's gradients; None where it goes elsewhere, or nobody wants it."""
    behind = node.next_functions[number][0] if number < len(node.next_functions) else None
    return getattr(behind, "variable", None)


def computed_by(t: Tensor) -> Node | None:
    """The node whose first result `t` is, or is but for being cloned, or cast to a type no wider, as autocast does."""
    node, number = t.grad_fn, t.output_nr
    if cloned(t):
        ((node, number),) = node.next_functions
    elif node is not None and node.name() == CAST:
        ((node, number),) = node.next_functions
        made = None if node is None else node._input_metadata[number]
        if made is None or made.device != t.device or made.dtype.itemsize < t.dtype.itemsize:
            return None
    return None if number else node


def cast_from(t: Tensor) -> Tensor | None:
    """The leaf that `t` is in another type, on the same device; None where it is something else."""
    node = t.grad_fn
    leaf = node.next_functions[0][0] if node is not None and node.name() == CAST else None
    found = getattr(leaf, "variable", None)
    return found if found is not None and found.device == t.device and found.shape == t.shape else None


def current_node() -> Node:
    """The node whose backward function runs."""
    return torch._C._current_autograd_node()


def in_backward() -> bool:
    """Does a node's backward function run on this thread? Never in a torch that does not tell."""
    return hasattr(torch._C, "_current_autograd_node") and current_node() is not None


class _Look(threading.local):
    """wanted: our unpack function shall not unpack but note what it was handed."""

    wanted = False

    def __init__(self) -> None:
        self.found: list[Any] = []


_look = _Look()


def noting(unpack: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """`unpack` as it must be given to autograd for `held` to work."""
    if SLOTS_TOLD:
        return unpack

    def unpack_or_note(packed: Any) -> Any:
        if not _look.wanted:
            return unpack(packed)
        _look.found.append(packed)
        return torch.empty(0)

    return unpack_or_note


def slots_of(node: Node) -> tuple[str, ...]:
    """Names of the tensors that the node saves: "self", "result". Functions written in Python have one, "tensors"; operations
    written in C++ outside of torch have none.
    """
    return tuple(name.removeprefix(RAW) for name in dir(node) if name.startswith(RAW))


def held(node: Node, slot: str) -> tuple[Any, ...]:
    """What our pack function gave for the node's tensors in `slot`; anything else where it is not ours, nothing where the graph
    is freed or the node has no such slot.

    In an older torch somebody else's unpack function may be called: ask only nodes that are likely to hold what is ours.
    """
    try:
        return _told(node, slot) if SLOTS_TOLD else _asked(node, slot)
    except (AttributeError, RuntimeError):
        return ()


def _told(node: Node, slot: str) -> tuple[Any, ...]:
    saved = getattr(node, RAW + slot)
    every = saved if isinstance(saved, tuple | list) else (saved,)
    return tuple(one.data for one in every if one is not None and one.data is not None)


def _asked(node: Node, slot: str) -> tuple[Any, ...]:
    _look.wanted, _look.found = True, []
    try:
        # A function written in Python has no `_saved_tensors`.
        getattr(node, "saved_tensors" if slot == "tensors" else f"_saved_{slot}")
    finally:
        # Nothing stays noted: a handle alive would keep its copy, and with it memory.
        found, _look.wanted, _look.found = tuple(_look.found), False, []
        _hooks_again(node)
    return found


def _hooks_again(node: Node) -> None:
    """What is unpacked in place of a leaf takes the leaf's hooks with it, out of autograd's sight: Python still lists them."""
    leaves = (getattr(one, "variable", None) for one in behind(node))
    for leaf in leaves:
        if leaf is not None and leaf._backward_hooks:
            leaf._backward_hooks = leaf._backward_hooks


def argument(node: Node, name: str, default: Any) -> Any:
    """An argument of the operation that is no tensor, as whether a norm was in training mode."""
    return getattr(node, f"_saved_{name}", default)
