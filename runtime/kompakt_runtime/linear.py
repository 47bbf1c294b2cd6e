"""Layers that are linear in their input and weight, known by their forward function."""

from typing import Any, Final

from torch import nn

# A subclass that has its own forward function is not in.
FORWARDS: Final = frozenset({nn.Linear.forward, nn.Conv1d.forward, nn.Conv2d.forward, nn.Conv3d.forward})


def trained_weight(module: Any) -> Any:
    """A linear layer's own trainable weight; None for every other module.

    A weight that is made from others on each pass (weight_norm, parametrizations, replicas) is no parameter. A layer with
    forward pre-hooks of its own is left alone too: what those compute is saved during the layer's call.
    """
    weight = module._parameters.get("weight") if _untouched(module) else None
    return weight if weight is not None and weight.requires_grad and weight.is_leaf and weight.is_floating_point() else None


def frozen(module: Any) -> bool:
    """A convolution whose weight asks for no gradient: torch saves its input all the same, and reads only the shape."""
    weight = module._parameters.get("weight") if _untouched(module) and not isinstance(module, nn.Linear) else None
    return weight is not None and weight.is_leaf and not weight.requires_grad


def _untouched(module: Any) -> bool:
    return type(module).forward in FORWARDS and not module._forward_pre_hooks
