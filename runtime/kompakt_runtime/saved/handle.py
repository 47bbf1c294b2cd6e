"""What autograd gets instead of a tensor, and what is said where it cannot be read again."""

from typing import Any

import torch

from kompakt_runtime.compat.tensors import version_of
from kompakt_runtime.saved.entry import SavedStorage
from kompakt_runtime.uses.policy import Use

Tensor = Any


class DecodeFailed(RuntimeError):
    """A copy cannot be read in a backward pass. Its original is gone, so nothing can stand in for it."""


class ChangedInPlace(RuntimeError):
    """What a backward pass needs was changed meanwhile, as plain autograd says it too."""


class Handle:
    """What autograd gets instead of a tensor: a view of an entry's storage.

    call: the module call that saved it, while nobody knows what reads it; opened: a backward pass has read it.
    """

    __slots__ = ("__weakref__", "asked", "call", "dtype", "entry", "offset", "opened", "shape", "strides", "use", "version")

    def __init__(self, entry: SavedStorage, t: Tensor) -> None:
        entry.handles += 1
        self.call: Any = None
        self.opened = False
        self.asked: tuple[Any, str] | None = None  # who bears errors in it, and the slot
        self.entry, self.use = entry, Use.VALUES
        self.version = version_of(t)
        self.dtype, self.shape, self.strides, self.offset = t.dtype, t.shape, t.stride(), t.storage_offset()

    def __del__(self) -> None:
        """A branch that was computed and thrown away."""
        if self.call is not None:
            self.entry.demand.unresolved -= 1

    def wait(self, call: Any) -> None:
        """Until its reader is known; `entry.hold` was called for it."""
        self.call = call

    def resolve(self) -> Any:
        """Its reader is known, or never will be. The call that saved it."""
        call, self.call = self.call, None
        self.entry.demand.unresolved -= 1
        return call

    def view(self, flat: Tensor) -> Tensor:
        if flat.dtype != self.dtype:
            flat = flat.view(self.dtype)
        return flat.as_strided(self.shape, self.strides, self.offset)

    def shape_only(self, device: Any) -> Tensor:
        """A stand-in of the right shape, type and memory format, for operations that read nothing else; without memory where
        the format allows it.
        """
        nothing = torch.zeros((), dtype=self.dtype, device=device)
        if self.strides == tuple(torch.empty(self.shape, device="meta").stride()):
            return nothing.expand(self.shape)
        return torch.empty_strided(self.shape, self.strides, dtype=self.dtype, device=device).zero_()


class PlainTensor:
    """A tensor that is kept as it is, outside the accounts: parameters, or what the ledger cannot describe."""

    __slots__ = ("tensor", "version")

    def __init__(self, t: Tensor) -> None:
        # A leaf has no history, so holding it makes no cycle; and whoever exchanges its data sees what plain autograd sees.
        self.tensor = t if t.is_leaf else t.detach()
        self.version = version_of(t)


def check_version(now: Tensor, version: int, shape: Any, dtype: Any) -> None:
    """Saved-tensor hooks switch off autograd's own check, so we do it, in words that people search for."""
    if version_of(now) != version:
        raise ChangedInPlace(
            f"one of the variables needed for gradient computation has been modified by an inplace operation: "
            f"a tensor of {dtype}, shape {list(shape)}, is at version {version_of(now)}; expected version {version} instead."
        )
