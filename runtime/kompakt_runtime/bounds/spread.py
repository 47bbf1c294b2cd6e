"""How the errors of linear operands are spread over the coordinates of their parameter's gradient."""

from dataclasses import dataclass
from typing import Any

import torch

from kompakt_runtime.bounds.sigma import Contraction, in_parts
from kompakt_runtime.saved.noise import wide

Tensor = Any


@dataclass(frozen=True)
class Spread:
    """The variance at output channel i and feature j grows with the sum of delta² in that channel, for an operand of one bound,
    and with how many elements of that feature are not zero, for zeros have no error.

    outputs: the parameter's dimension of output channels, 0 or 1, features being the other one; rows, columns: those sums and
    those counts, None where they are not known and all count alike.
    """

    outputs: int = 0
    rows: Tensor = None
    columns: Tensor = None

    def mean(self, t: Tensor) -> Tensor:
        """Mean over the elements of a tensor of the parameter's shape, each weighted by the error's variance there."""
        by_feature = self.by_feature(t)
        if by_feature is None:
            return t.mean()
        if self.columns is None or len(self.columns) != len(by_feature):
            return by_feature.mean()
        return _shares(self.columns).to(t) @ by_feature

    def by_feature(self, t: Tensor) -> Tensor | None:
        """The same for each feature alone; None where channels are not known, or this is one rank's part of a parameter."""
        if self.rows is None or t.dim() < 2 or len(self.rows) != t.shape[self.outputs]:
            return None
        t = t.movedim(self.outputs, 0)
        return _shares(self.rows).to(t) @ (t.flatten(2).mean(2) if t.dim() > 2 else t)


def _shares(counts: Tensor) -> Tensor:
    return counts.double() / counts.sum()


class ByChannel:
    """Sums of one measured step, on its device."""

    def __init__(self) -> None:
        self._outputs: set[int | None] = set()
        self._rows: Tensor = None
        self._columns: Tensor = None

    @property
    def spread(self) -> Spread:
        """Even where operations use the parameter in more than one way."""
        outputs = next(iter(self._outputs)) if len(self._outputs) == 1 else None
        return Spread() if outputs is None else Spread(outputs, self._rows, self._columns)

    def add_input(self, x: Tensor, contraction: Contraction) -> None:
        self._outputs.add(contraction.outputs_at)
        if self._one_way:
            self._columns = _plus(self._columns, _nonzero(x, contraction.along % x.dim()))

    def add_delta(self, delta: Tensor, contraction: Contraction) -> None:
        if self._one_way:
            others = [dim for dim in range(delta.dim()) if dim != contraction.along % delta.dim()]
            self._rows = _plus(self._rows, torch.linalg.vector_norm(delta, dim=others, dtype=wide(delta)).square())

    def keep_backward(self, kept: Tensor) -> None:
        """As `Sums.keep_backward`."""
        if self._rows is not None:
            self._rows = torch.where(kept, self._rows, torch.zeros_like(self._rows))

    @property
    def _one_way(self) -> bool:
        return len(self._outputs) == 1 and None not in self._outputs


def _nonzero(x: Tensor, along: int) -> Tensor:
    """How many elements are not zero, by the place along one dimension."""
    others = [dim for dim in range(x.dim()) if dim != along]
    return torch.stack([torch.count_nonzero(part, others) for part in in_parts(x, along)[1]]).sum(0)


def _plus(total: Tensor, more: Tensor) -> Tensor:
    return more if total is None else total + more
