"""Bounds of batch norms' inputs, which count in what each channel deviates by.

A batch norm divides each channel by its deviation, so an error is as large behind it as its share of that. One bound for all
channels is wasted on wide ones, and leaves nothing of narrow ones: on steps that are measured that may do no harm, and on others
the narrowest channel has the largest gradients. Deviations come with each pass, so bounds follow them between measured steps.
"""

from dataclasses import dataclass
from typing import Any, Final

import torch

from kompakt_runtime.codec import by_channel
from kompakt_runtime.codec.channels import DEEPEST, LEAST_BOUND, Channels
from kompakt_runtime.codec.features import BoundsWanted, in_storage
from kompakt_runtime.compat.graph import held
from kompakt_runtime.saved.noise import wide
from kompakt_runtime.uses.consumption import BATCH_NORMS, Consumption
from kompakt_runtime.uses.reads import Read

Tensor = Any
# Powers of two between the widest and the narrowest channel, below which one bound for all is as good and takes less time.
APART: Final = 2


@dataclass(frozen=True)
class Widths:
    """each: what a channel (dimension 1 of the input) deviates by, with the norm's eps in it; weight: what the norm multiplies by
    after it has divided by that.
    """

    each: Tensor
    weight: Tensor

    def asked(self, x: Tensor, share: float) -> BoundsWanted:
        """Errors of this share of each channel's deviation; where channels cannot have bounds of their own, one that does as much
        to all of them together.
        """
        one = BoundsWanted(share * float(self.each.square().reciprocal().mean().rsqrt()))
        channels, widest = self._channels(x), share * 2.0 ** float(self._powers.max())
        return BoundsWanted(one.bound, widest, channels) if channels is not None and by_channel(x, widest) else one

    def behind(self, x: Tensor, bound: float) -> BoundsWanted:
        """Errors that are this large at most behind the norm."""
        each = bound * self.each.double() / self.weight.abs().double().clamp(min=LEAST_BOUND)
        powers = each.clamp(max=each.min() * 2.0**DEEPEST).log2().round()
        depths = powers.max() - powers
        widest = float((each * 2.0**depths).min())
        channels = in_storage(x, 1, depths.clamp(max=DEEPEST).to(torch.uint8)) if by_channel(x, widest) else None
        return BoundsWanted(float(each.min()), widest, channels)

    def _channels(self, x: Tensor) -> Channels | None:
        depths = self._powers.max() - self._powers
        return in_storage(x, 1, depths.clamp(max=DEEPEST).to(torch.uint8)) if depths.max() >= APART else None

    @property
    def _powers(self) -> Tensor:
        return self.each.log2().round()


def noise(asked: BoundsWanted, x: Tensor) -> Any:
    """How wide the errors are that were asked for: a number, or numbers that `x` can be multiplied with."""
    if asked.channels is None:
        return asked.bound
    each = asked.widest * 2.0 ** -asked.channels.depths.double()
    return each.to(wide(x)).view(1, -1, *[1] * (x.dim() - 2))


def widths(use: Consumption, x: Tensor) -> Widths | None:
    """None for what is no batch norm's input, and on GPUs, whose kernels know no bounds by channel."""
    if use.read is not Read.NORM or use.node.name() not in BATCH_NORMS or x.device.type != "cpu" or x.dim() < 2:
        return None
    inverse = next((one for one in held(use.node, "result2") if isinstance(one, torch.Tensor)), None)
    if inverse is None or len(inverse) != x.shape[1]:
        variance = torch.var(x, [dim for dim in range(x.dim()) if dim != 1], correction=0).to(wide(x))
        inverse = (variance + torch.finfo(variance.dtype).eps).rsqrt()
    weight = next((one.tensor for one in held(use.node, "weight") if hasattr(one, "tensor")), None)
    weight = torch.ones_like(inverse) if weight is None else weight.detach()
    return Widths(1 / inverse, weight) if bool((inverse > 0).all() and inverse.isfinite().all()) else None
