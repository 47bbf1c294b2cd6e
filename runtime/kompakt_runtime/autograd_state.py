"""What autograd holds for its nodes, and whose saved-tensor hooks are innermost.

Newer versions of torch answer both. Where one does not, there is another way, chosen by what is there and not by version:
what a node holds is asked for by having it unpacked and noting what our own unpack function is handed; hooks are known by
watching them come and go.
"""

import threading
from collections.abc import Callable
from types import CodeType
from typing import Any, Final

import torch

Node = Any
Pair = tuple[Callable[..., Any], Callable[..., Any]]
_C: Final = torch._C._autograd
_FRAMES: Final = torch._C._dynamo.eval_frame

SLOTS_TOLD: Final = hasattr(_C.SavedTensor, "data")
INNERMOST_TOLD: Final = hasattr(_C, "_top_saved_tensors_default_hooks")


class _Look(threading.local):
    """wanted: our unpack function shall not unpack but note what it was handed."""

    wanted = False
    found: Any = None


_look = _Look()


def noting(unpack: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """`unpack` as it must be given to autograd for `packed_in` to work."""
    if SLOTS_TOLD:
        return unpack

    def unpack_or_note(packed: Any) -> Any:
        if not _look.wanted:
            return unpack(packed)
        _look.found = packed
        return torch.empty(0)

    return unpack_or_note


def packed_in(node: Node, slot: str) -> Any:
    """What our pack function gave for the node's tensor `slot` ("self", "result"); anything else if it is not ours.

    In an older torch somebody else's unpack function may be called: ask only nodes that are likely to hold what is ours.
    """
    if SLOTS_TOLD:
        return getattr(node, f"_raw_saved_{slot}").data
    _look.wanted, _look.found = True, None
    try:
        getattr(node, f"_saved_{slot}")
    except RuntimeError:
        return None  # a tensor that nobody packed, changed in place since
    finally:
        # Nothing stays noted: a handle alive would keep its copy, and with it memory.
        found, _look.wanted, _look.found = _look.found, False, None
    return found


def saves_result_now(node: Node) -> bool:
    """Is the node, while a pack function runs, about to save its own result? True only for the youngest node of this thread:
    what saves the result later has a node of its own, made before it saves.
    """
    if SLOTS_TOLD:
        return bool(node._raw_saved_result.data is None)
    return bool(node._sequence_nr() + 1 == torch.autograd._get_sequence_nr() and node._saved_result is None)


def untraced(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` as a hook that code of torch.compile may run into: older versions (2.4, 2.8) would compile it too, with its
    numbers as constants. torch.compiler.disable does this as well, but loads the compiler, which takes seconds.
    """

    def call(*args: Any) -> Any:
        before = _FRAMES.set_eval_frame(None)
        try:
            return function(*args)
        finally:
            _FRAMES.set_eval_frame(before)

    _skip(call.__code__)
    return call


def _skip(code: CodeType) -> None:
    if hasattr(_FRAMES, "skip_code"):
        _FRAMES.skip_code(code)
    else:
        skip = _FRAMES._FrameAction.SKIP
        _FRAMES.set_code_exec_strategy(code, _FRAMES._FrameExecStrategy(skip, skip))


def watched() -> Callable[[], Pair | None]:
    """From now on the hooks that are entered and left are noted; the function returned names the innermost of its thread.

    Hooks entered before, on this thread, count as somebody's.
    """
    push, pop = _C._push_saved_tensors_default_hooks, _C._pop_saved_tensors_default_hooks
    somebody = (len, len)
    here = threading.local()
    here.pairs = [somebody] if _some_are_active() else []

    def pairs() -> list[Pair]:
        if not hasattr(here, "pairs"):
            here.pairs = []
        return here.pairs  # type: ignore[no-any-return]

    def push_noted(pack: Callable[..., Any], unpack: Callable[..., Any]) -> None:
        push(pack, unpack)  # raises where hooks are switched off
        pairs().append((pack, unpack))

    def pop_noted() -> None:
        pop()
        del pairs()[-1:]

    _C._push_saved_tensors_default_hooks, _C._pop_saved_tensors_default_hooks = push_noted, pop_noted
    return lambda: pairs()[-1] if pairs() else None


def _some_are_active() -> bool:
    """Saves one number; whoever has hooks is handed it, once."""
    with torch.enable_grad():
        made = torch.zeros((), requires_grad=True).exp()
    try:
        made.grad_fn._raw_saved_result.register_hooks(lambda t: t, lambda t: t)
    except RuntimeError:  # it has hooks already
        return True
    return False


innermost: Callable[[], Pair | None] = (lambda: _C._top_saved_tensors_default_hooks(True)) if INNERMOST_TOLD else watched()
