"""What torch keeps about tensors, storages and modules, and does not promise."""

from typing import Any

import torch

Tensor = Any


def storage_key(t: Tensor) -> int:
    """The storage's address; it may be given away again once nothing refers to the storage, not even weakly."""
    return int(t.untyped_storage()._cdata)


def users_of(key: int) -> int:
    return int(torch._C._storage_Use_Count(key))


def version_of(t: Tensor) -> int:
    """How often the tensor, or a view that shares its memory, was changed in place."""
    return int(t._version)


def base_of(t: Tensor) -> Tensor:
    """The tensor that this one is a view of, None if it is none."""
    return t._base


def parameters_of(module: Any) -> dict[str, Any]:
    """The module's own; `parameters()` takes several times longer, and this is done in every step."""
    return module._parameters  # type: ignore[no-any-return]


def buffers_of(module: Any) -> dict[str, Any]:
    return module._buffers  # type: ignore[no-any-return]


def untouched(module: Any) -> bool:
    """The module computes what its class says: nobody replaced its forward function or put hooks before it."""
    return "forward" not in module.__dict__ and not module._forward_pre_hooks


def device_of(module: Any) -> Any:
    """That of its first parameter; the CPU where it has none."""
    return next((weight.device for weight in module.parameters()), torch.device("cpu"))
