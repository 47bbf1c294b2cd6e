"""Every access to what torch does not promise, and which of it this version has.

Nothing is chosen by version number, but by what is there. Where something is missing there is another way, or the feature that
needs it is off; `capabilities` says which.
"""

from dataclasses import dataclass

import torch

from kompakt_runtime.compat.graph import SLOTS_TOLD
from kompakt_runtime.compat.hooks import FRAMES, INNERMOST_TOLD


@dataclass(frozen=True)
class Capability:
    """One thing that torch does not promise. instead: what is done without it."""

    name: str
    present: bool
    instead: str


def capabilities() -> tuple[Capability, ...]:
    """No tensor is made for it."""
    rows = (
        ("SavedTensor.data", SLOTS_TOLD, "nodes are asked by unpacking what they hold"),
        ("innermost hooks", INNERMOST_TOLD, "hooks are watched as they come and go"),
        ("sequence numbers", hasattr(torch.autograd, "_get_sequence_nr"), "nothing is packed"),
        ("current node", hasattr(torch._C, "_current_autograd_node"), "noise is not measured: nonlinear operands stay plain"),
        ("users of a storage", hasattr(torch._C, "_storage_Use_Count"), "tensors that others hold are packed as well"),
        ("skipping frames", hasattr(FRAMES, "skip_code") or hasattr(FRAMES, "set_code_exec_strategy"), "models are not compiled"),
        ("torch.func at work", hasattr(torch._C, "_functorch"), "torch.func raises inside a model's forward pass"),
    )
    return tuple(Capability(*row) for row in rows)
