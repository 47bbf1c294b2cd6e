"""What the error of a layer's packed input really does to its weight gradient, on one layer of a measured step."""

from typing import Any

import torch
from torch import nn
from torch.nn import grad

Tensor = Any


def weight_gradient(module: Any, error: Tensor, delta: Tensor) -> Tensor | None:
    """The weight gradient that the input `error` alone would give with the output gradient `delta`: the operation is linear.

    In float32 or wider, shaped as the weight; None for a convolution whose padding is not plain zeros.
    """
    kind = torch.promote_types(torch.float32, delta.dtype)
    error, delta = error.to(kind), delta.to(kind)
    if isinstance(module, nn.Linear):
        return delta.reshape(-1, module.out_features).t() @ error.reshape(-1, module.in_features)
    if module.padding_mode != "zeros" or isinstance(module.padding, str):
        return None
    function = (grad.conv1d_weight, grad.conv2d_weight, grad.conv3d_weight)[len(module.kernel_size) - 1]
    return function(error, module.weight.shape, delta, module.stride, module.padding, module.dilation, module.groups)
