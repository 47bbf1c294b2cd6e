"""Where a saved tensor comes from: parameters in every guise, compiled code."""

import os
from collections.abc import Iterator
from types import FrameType
from typing import Any, Final

import torch

from kompakt_runtime.compat.graph import held, noting, number_of, saved_for
from kompakt_runtime.compat.hooks import innermost
from kompakt_runtime.uses.parameters import ACCUMULATE, PASSING

Tensor = Any

AOT: Final = f"{os.sep}_aot_autograd{os.sep}"


def is_parameter(t: Tensor) -> bool:
    """True for a parameter (any leaf that wants a gradient), a view of one, and its copy in another type (autocast)."""
    if isinstance(t, torch.nn.Parameter) or (t.is_leaf and t.requires_grad):
        return True
    base = t._base
    if base is not None and (isinstance(base, torch.nn.Parameter) or (base.is_leaf and base.requires_grad)):
        return True
    node = t.grad_fn
    while node is not None and node.name() in PASSING:
        node = node.next_functions[0][0]
    return node is not None and bool(node.name() == ACCUMULATE)


def _own_tensors(root: Any) -> Iterator[Tensor]:
    """All parameters and buffers, some twice; `parameters()` takes several times longer, and this is done in every step."""
    for module in root.modules():
        yield from module._parameters.values()
        yield from module._buffers.values()


def own_storages(root: Any) -> tuple[frozenset[int], bool]:
    """Storages of the plain parameters and buffers of a model, and whether there are others, as shards."""
    mine = [t for t in _own_tensors(root) if t is not None]
    plain = [t.untyped_storage()._cdata for t in mine if is_plain(t)]
    return frozenset(plain), len(plain) < len(mine)


def is_plain(t: Tensor) -> bool:
    return type(t) in (torch.Tensor, torch.nn.Parameter) and t.layout == torch.strided


def saved_by_compiled_code(frame: FrameType | None) -> bool:
    """Does a region made by torch.compile save a tensor? `frame`: the innermost one of Python code that is not ours.

    A compiled function or module may run anywhere, and calls no module hooks; but it always runs as one autograd function that
    AOTAutograd applies: directly (torch 2.15), or through a line of torch.autograd.function.
    """
    for _ in range(2):
        if frame is None:
            return False
        if AOT in frame.f_code.co_filename:
            return True
        frame = frame.f_back
    return False


def self_check() -> str:
    """What this torch does differently from what the functions above and the version check rely on; "" if nothing.

    They rest on details that torch does not promise (numbers of nodes, what they hold, a shared version counter), so they are
    tried once at start-up. No random numbers, no backward pass.
    """
    numbers: list[int] = []

    def pack(t: Tensor) -> list[int]:
        numbers.append(saved_for(t))
        return numbers

    with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(pack, noting(lambda packed: torch.zeros(1))):
        top = innermost()
        y = torch.relu(torch.zeros(1, requires_grad=True))
    if numbers != [number_of(y.grad_fn)]:
        return "the operation that saves a tensor cannot be told"
    if [one is numbers for one in held(y.grad_fn, "result")] != [True]:
        return "what an operation holds cannot be looked at"
    if top is None or top[0] is not pack or innermost() == top:
        return "the innermost hooks cannot be told"
    t = torch.zeros(2)
    alias = t.detach()
    alias.data = t.new_empty(0)
    t.add_(1)
    return "" if alias._version == t._version else "an alias without memory does not share the version counter"
