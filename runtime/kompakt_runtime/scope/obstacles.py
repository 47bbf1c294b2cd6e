"""Why a module's call, or a whole program, runs as without us."""

import sys
from typing import Any

import torch

from kompakt_runtime.compat.hooks import innermost
from kompakt_runtime.figures.counted import COMPILED


def obstacle(module: Any) -> str | None:
    """Why our hooks must not be entered here; the region then runs as without us."""
    if compiled(module):
        return COMPILED
    if torch._C._functorch.peek_interpreter_stack() is not None:
        return "FuncTransform"
    if not torch._C._autograd._saved_tensors_hooks_is_enabled():
        return "HooksDisabled"
    if innermost() is not None:
        return "UserHooks"
    # Asking whether CUDA is there would start it, and then no forked child could use it.
    if torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing():
        return "GraphCapture"
    return None


def compiled(module: Any) -> bool:
    return type(module).__name__ == "OptimizedModule"


def compiled_something() -> bool:
    """Has torch.compile made code in this process? Looks only where it is loaded already."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    return dynamo is not None and bool(dynamo.counters["frames"]["ok"])
