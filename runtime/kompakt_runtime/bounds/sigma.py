"""How a linear operand enters its parameter's gradient: over how many channels it spreads, and what an error in it does there.

Read from the node while it is at hand: a function that held the node would be held by it in turn.
"""

import math
from dataclasses import dataclass, replace
from typing import Any, Final

import torch

from kompakt_runtime.compat.graph import argument
from kompakt_runtime.saved.lossless import Mask, sign_mask
from kompakt_runtime.saved.noise import parts_of
from kompakt_runtime.uses.parameters import ACCUMULATE

Tensor = Any
Node = Any

# Factors of matrix products, by the side they stand on.
LEFT: Final = frozenset({"MmBackward0.self", "AddmmBackward0.mat1", "BmmBackward0.self", "BaddbmmBackward0.batch1"})
RIGHT: Final = frozenset({"MmBackward0.mat2", "AddmmBackward0.mat2", "BmmBackward0.mat2", "BaddbmmBackward0.batch2"})
VECTOR: Final = frozenset({"MvBackward0.vec", "AddmvBackward0.vec"})
CONVOLVED: Final = frozenset({"ConvolutionBackward0.input"})
ROWS: Final = frozenset({"GroupedMmBackward0.self", "LinearBackward0.input"})
# Of the node's gradients the one that goes to the parameter.
_PARTNER: Final = {
    "MmBackward0.self": 1, "MmBackward0.mat2": 0, "AddmmBackward0.mat1": 2, "AddmmBackward0.mat2": 1, "LinearBackward0.input": 1,
    "ConvolutionBackward0.input": 1,
}  # fmt: skip
# Of a matrix; `w.T` is a permutation.
_TURNING: Final = frozenset({"TBackward0", "MtBackward0", "TransposeBackward0", "PermuteBackward0"})
_STRAIGHT: Final = frozenset({"ToCopyBackward0", "AliasBackward0", "DetachBackward0", "CloneBackward0"})
_ARGUMENTS: Final = ("stride", "padding", "dilation", "transposed", "output_padding", "groups")
NOTHING: Final = 1e-5  # what arithmetic may leave of no share; of ten thousand elements that meet in a place one is more


@dataclass(frozen=True)
class Contraction:
    """shape: of the operand; weight: of the parameter; scale: what the product is multiplied by; arguments: of a convolution;
    outputs_at: the parameter's dimension of output channels, 0 or 1, and features have the other one; None where it is not known.
    """

    place: str
    shape: tuple[int, ...]
    weight: tuple[int, ...]
    scale: float
    arguments: tuple[Any, ...]
    outputs_at: int | None = None

    @property
    def batched(self) -> bool:
        """Do the first rows of operand and output's gradient tell of the first examples, and not of the first of many weights?"""
        return (self.place in LEFT and len(self.shape) == 2) or self.place in CONVOLVED

    def outputs(self, delta: Tensor) -> float:
        """Channels of the output, over which squares of its gradient are averaged: one element of the weight's gradient sums
        products with one of them. A parameter of which only a part is used has too many elements, one that is used several
        times too few.
        """
        if self.place in CONVOLVED:
            return float(delta.shape[1])
        outputs = math.prod(self.weight) / self._inputs
        if self.place in LEFT or self.place in RIGHT:
            outputs = min(outputs, delta.numel() / self.shape[-2 if self.place in LEFT else -1])
        return float(outputs) / self.scale**2

    @property
    def _inputs(self) -> int:
        """Elements of the operand that meet in one element of the output."""
        if self.place in LEFT or self.place in ROWS:
            return self.shape[-1]
        if self.place in RIGHT:
            return self.shape[-2]
        return self.shape[0] if self.place in VECTOR or self.place == "DotBackward0.self" else 1

    @property
    def along(self) -> int:
        """The dimension of features in the operand, and of output channels in the output's gradient."""
        return 1 if self.place in CONVOLVED else -2 if self.place in RIGHT else -1

    def nonzero(self, x: Tensor) -> Tensor | None:
        """For each place of the output the share of nonzero elements among those of the operand `x` that meet there; one channel
        wide where the output's gradient has its channels. None where nobody wrote down how.
        """
        if self.place in CONVOLVED:
            return self._under_kernel(_share(x, 1)) if self._sums_neighbours(x) else None
        return _share(x, self.along) if (self.place in LEFT or self.place in RIGHT) and x.dim() > 1 else None

    def _sums_neighbours(self, x: Tensor) -> bool:
        return len(self.weight) == x.dim() and not self.arguments[_ARGUMENTS.index("transposed")]

    def _under_kernel(self, share: Tensor) -> Tensor:
        """Padding counts as zeros, as it is."""
        kernel = self.weight[2:]
        ones = share.new_full((1, 1, *kernel), 1 / math.prod(kernel))
        stride, padding, dilation, _, grown, _ = self.arguments
        return torch.ops.aten.convolution.default(share, ones, None, stride, padding, dilation, False, grown, 1)

    def gradient(self, error: Tensor, delta: Tensor) -> Tensor | None:
        """The weight gradient that the operand `error` alone would give with the output gradient `delta`.

        In float32 or wider and in any layout; None where nobody wrote down how.
        """
        kind = torch.promote_types(torch.float32, delta.dtype)
        error, delta = error.to(kind), delta.to(kind) * self.scale
        if self.place in LEFT:
            return error.mT @ delta
        if self.place in RIGHT:
            return delta @ error.mT
        if self.place in VECTOR:
            return torch.outer(delta, error)
        return self._convolved(error, delta) if self.place in CONVOLVED and len(self.weight) == delta.dim() else None

    def _convolved(self, error: Tensor, delta: Tensor) -> Tensor:
        wanted = (False, True, False)
        backward = torch.ops.aten.convolution_backward.default
        return backward(delta, error, delta.new_empty(self.weight), None, *self.arguments, wanted)[1]


@dataclass(frozen=True)
class Met:
    """What the gradients at an operation's output meet in its operand, of the first `rows` where these tell of examples.

    places: those where any nonzero element is met, in a bit each until the backward pass; None where nobody wrote down what meets
    where. shape: theirs. shares, count: the sum over these places of the share that is nonzero, and how many they are.
    """

    contraction: Contraction
    places: Mask | None
    shape: tuple[int, ...]
    shares: Tensor
    count: Tensor
    rows: int | None = None

    @staticmethod
    def of(contraction: Contraction, x: Tensor) -> "Met":
        share = contraction.nonzero(x)
        if share is None:
            return Met(contraction, None, (), torch.count_nonzero(x).double(), x.new_full((), x.numel(), dtype=torch.double))
        some = share > NOTHING
        places = sign_mask(some.to(share.dtype).flatten())
        return Met(contraction, places, tuple(share.shape), share.sum(), torch.count_nonzero(some))

    def first(self, rows: int) -> "Met":
        """Of the first examples, where rows tell of them."""
        return replace(self, rows=rows) if self.contraction.batched else self

    def some(self) -> Tensor | None:
        """1 in the places where anything is met, else 0."""
        return None if self.places is None else self.places.decode().view(self.shape)[: self.rows]


def _share(x: Tensor, along: int) -> Tensor:
    """Of nonzero elements along one dimension, which is kept."""
    across, parts = in_parts(x, along)
    counts = [torch.count_nonzero(part, along).unsqueeze(along) for part in parts]
    return torch.cat(counts, across).float() / x.shape[along]


def in_parts(x: Tensor, along: int) -> tuple[int, tuple[Tensor, ...]]:
    """Whole along one dimension, divided along another, which is returned too: counting one part at a time takes little."""
    across = max((dim for dim in range(x.dim()) if dim != along % x.dim()), key=lambda dim: x.shape[dim])
    return across, x.tensor_split(max(1, min(parts_of(x), x.shape[across])), across)


def contraction(node: Node, slot: str, shape: tuple[int, ...], parameter: Tensor) -> Contraction:
    place = f"{node.name()}.{slot}"
    arguments = tuple(argument(node, name, ()) for name in _ARGUMENTS) if place in CONVOLVED else ()
    scale = abs(float(argument(node, "alpha", 1.0))) or 1.0
    outputs_at = _outputs_at(node, place, parameter.dim())
    return Contraction(place, tuple(shape), tuple(parameter.shape), scale, arguments, outputs_at)


def _outputs_at(node: Node, place: str, dims: int) -> int | None:
    """A parameter is used as it is, or turned: what multiplies rows has features first, but `nn.Linear` keeps that turned."""
    if place not in _PARTNER or (place in CONVOLVED and argument(node, "transposed", False)):
        return None
    turned, behind = False, node.next_functions[_PARTNER[place]][0]
    while behind is not None and behind.name() in (_TURNING | _STRAIGHT if dims == 2 else _STRAIGHT):
        turned ^= behind.name() in _TURNING
        behind = behind.next_functions[0][0]
    if behind is None or behind.name() != ACCUMULATE or dims < 2 or (dims > 2 and place not in CONVOLVED):
        return None
    return int(turned != (place in LEFT))
