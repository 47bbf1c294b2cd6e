"""What a budget of memory is held against, and what of it sharding would share out."""

import os
from typing import Any

import torch

from kompakt_runtime.cost.headroom import held, limit, peak


class Memory:
    """What a budget is held against: bytes that tensors have on a GPU, resident memory of the process on a CPU."""

    def __init__(self, device: Any) -> None:
        self._device = device

    def there(self) -> int:
        if self._device.type == "cuda":
            return int(torch.cuda.get_device_properties(self._device).total_memory)
        return limit(self._device, os.environ)

    def now(self) -> int:
        return held(self._device)

    def peak(self) -> int:
        """The most so far."""
        return int(torch.cuda.max_memory_allocated(self._device)) if self._device.type == "cuda" else peak(self._device)


def state_bytes(optimizer: Any) -> int:
    """Weights, their gradients, and what the optimizer keeps of them; 0 where they are sharded already."""
    weights = [weight for group in optimizer.param_groups for weight in group["params"]]
    if any(hasattr(weight, "to_local") for weight in weights):
        return 0
    states = [state for state in optimizer.state.values() if isinstance(state, dict)]
    kept = [value for state in states for value in state.values() if isinstance(value, torch.Tensor)]
    there = [t for t in [*weights, *(weight.grad for weight in weights), *kept] if t is not None]
    return sum(int(t.numel() * t.element_size()) for t in there)
