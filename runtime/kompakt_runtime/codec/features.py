"""Bounds by feature of a linear operand, where the optimizer steps each coordinate of its parameter by about as much.

A bound of one size leaves features with small numbers only their signs, beside others with numbers a hundred times as large. The
features' errors share what is allowed alike: then fewest bits are needed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch

from kompakt_runtime.codec.channels import DEEPEST, Channels

Tensor = Any
# Powers of two between the widest and the tightest bound, from which on a bound of one size is given up.
APART: Final = 3


@dataclass(frozen=True)
class FeatureBounds:
    """Feature j's bound is `widest` * 2 ** -depths[j] times its parameter's; together they do to the step what that one would.

    outputs: the parameter's dimension of output channels; error: root mean square of the bounds, over the parameter's.
    """

    outputs: int
    widest: float
    depths: Tensor
    error: float


def feature_bounds(outputs: int, harm: Tensor, counts: Tensor) -> FeatureBounds | None:
    """harm: what the square of an error in each feature does to the step; counts: how many elements of it may have one.

    None where one bound serves all, on GPUs, whose kernels know no other, and where figures say nothing.
    """
    counts = counts.double()
    weighted = counts * harm
    if harm.device.type != "cpu" or not (weighted.isfinite().all() and (harm > 0).all() and weighted.sum() > 0):
        return None
    powers = (weighted.sum() / counts.sum() / harm).log2().div(2).round()
    powers = powers.clamp(min=powers.max() - DEEPEST)
    if powers.max() - powers.min() < APART:
        return None
    common = (weighted.sum() / (weighted * 4**powers).sum()).sqrt()
    error = common * ((counts * 4**powers).sum() / counts.sum()).sqrt()
    depths = (powers.max() - powers).to(torch.uint8)
    return FeatureBounds(outputs, float(common * 2 ** powers.max()), depths, float(error))


def in_storage(x: Tensor, along: int, depths: Tensor) -> Channels | None:
    """The bounds as channels of the storage that `x` fills; None where its features do not take turns there."""
    if x.shape[along] != len(depths) or not _dense(x):
        return None
    return Channels(depths, x.stride(along))


def _dense(x: Tensor) -> bool:
    step = 1
    for stride, size in sorted((stride, size) for stride, size in zip(x.stride(), x.shape, strict=True) if size != 1):
        if stride != step:
            return False
        step *= size
    return bool(x.numel() * x.element_size() == x.untyped_storage().nbytes())


@dataclass(frozen=True)
class BoundsWanted:
    """What one reader bears: `bound` everywhere, or `widest` in some channels and less in others."""

    bound: float
    widest: float = 0.0
    channels: Channels | None = None


def agreed(asked: Sequence[BoundsWanted]) -> BoundsWanted | None:
    """By channel what all readers bear; None where they do not agree on what a channel is, or one has none."""
    channels = [one.channels for one in asked if one.channels is not None]
    ways = {(own.stride, len(own.depths)) for own in channels}
    if len(ways) != 1 or len(channels) < len(asked):
        return None
    if len(asked) == 1:
        return asked[0]
    bounds = [one.widest * 2.0 ** -own.depths.double() for one, own in zip(asked, channels, strict=True)]
    every = torch.stack(bounds).amin(0)
    widest = float(every.max())
    depths = (widest / every).log2().ceil()
    if depths.max() > DEEPEST:
        return None
    return BoundsWanted(min(one.bound for one in asked), widest, Channels(depths.to(torch.uint8), channels[0].stride))
