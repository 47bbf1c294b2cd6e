"""What a batch norm gave, computed again: how far errors of its input reach, which may be other ones in each channel."""

import math
from dataclasses import dataclass
from typing import Any, Final

import torch

from kompakt_runtime.codec.features import agreed
from kompakt_runtime.saved.derived import Derivation, Read, Source
from kompakt_runtime.saved.handle import PlainTensor

Tensor = Any
OPERATIONS: Final = 8  # roundings that two formulas of a norm may differ by


@dataclass(frozen=True)
class Reach:
    """factors: what each channel is multiplied by, float64; apart: how far two formulas may be apart in any."""

    factors: Tensor
    apart: float

    @staticmethod
    def of(derivation: Derivation, largest: float, read: Read) -> "Reach":
        """largest: magnitude of the result; read: of a source. Statistics are read back from their device."""
        weight, mean, scale, shift = (read(one)[0].detach().double() for one in derivation.sources[1:])
        factors = (weight * scale).abs()
        moved, shifted = float((factors * mean.abs()).max()), float(shift.abs().max())
        eps = torch.finfo(torch.promote_types(derivation.dtype, torch.float32)).eps
        return Reach(factors, OPERATIONS * eps * (moved + largest + shifted) + derivation.narrow * (moved + shifted))

    def error(self, source: Source) -> float:
        """How far an element of the result may be off."""
        return float((self.factors * _errors(source)).max()) + self.apart

    def more(self, source: Source, bound: float) -> float:
        """Bits that the source takes beyond what its own readers ask for, where no element of the result is off by more."""
        if isinstance(source, PlainTensor) or not source.entry.taken:
            return 0.0
        own = _own(source) * self.factors
        elements = source.entry.nbytes / source.dtype.itemsize
        return float(elements * (own / bound).log2().clamp(min=0).mean())


def _errors(source: Source) -> Any:
    """By channel, where the copy has bounds for these."""
    if isinstance(source, PlainTensor) or not source.entry.taken:
        return 0.0
    channels = source.entry.packed.channels if source.entry.packed is not None else None
    bound = float(source.entry.bound)
    if channels is None or channels.stride != source.strides[1] or len(channels.depths) != source.shape[1]:
        return bound
    return bound * 2.0 ** -channels.depths.double()


def _own(source: Source) -> Any:
    """The bounds that it would have if nothing were computed from it."""
    asked = source.entry.demand.asked
    together = agreed(asked)
    if together is None or together.channels is None:
        return min((one.bound for one in asked), default=math.inf)
    return together.widest * 2.0 ** -together.channels.depths.double()
