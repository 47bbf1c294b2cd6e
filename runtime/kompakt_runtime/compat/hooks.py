"""Saved-tensor hooks: entering and leaving them, whose are innermost, and keeping them out of compiled code."""

import threading
from collections.abc import Callable
from types import CodeType
from typing import Any, Final

import torch

Pair = tuple[Callable[..., Any], Callable[..., Any]]
_C: Final = torch._C._autograd
FRAMES: Final = torch._C._dynamo.eval_frame
INNERMOST_TOLD: Final = hasattr(_C, "_top_saved_tensors_default_hooks")


def push(pair: Pair) -> None:
    _C._push_saved_tensors_default_hooks(*pair)


def pop() -> None:
    _C._pop_saved_tensors_default_hooks()


def hooks_allowed() -> bool:
    return bool(_C._saved_tensors_hooks_is_enabled())


def in_transform() -> bool:
    """Inside of torch.func, which refuses to run while hooks are active."""
    return torch._C._functorch.peek_interpreter_stack() is not None


def untraced(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` as a hook that code of torch.compile may run into: older versions (2.4, 2.8) would compile it too, with its
    numbers as constants. torch.compiler.disable does this as well, but loads the compiler, which takes seconds.
    """

    def call(*args: Any) -> Any:
        before = FRAMES.set_eval_frame(None)
        try:
            return function(*args)
        finally:
            FRAMES.set_eval_frame(before)

    _skip(call.__code__)
    return call


def _skip(code: CodeType) -> None:
    if hasattr(FRAMES, "skip_code"):
        FRAMES.skip_code(code)
    else:
        skip = FRAMES._FrameAction.SKIP
        FRAMES.set_code_exec_strategy(code, FRAMES._FrameExecStrategy(skip, skip))


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
