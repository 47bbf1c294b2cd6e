"""A saved tensor that is computed again from what is kept for other operations anyway."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

import torch

from kompakt_runtime.compat.graph import SLOTS_TOLD, argument, cast_from, cloned, computed_by, held, parameter_at
from kompakt_runtime.compat.tensors import base_of, version_of
from kompakt_runtime.saved.operators import CAST, OPERATORS, Operator

Tensor = Any
# What an operation was computed from: a handle of ours, a parameter's, or our own copy of a parameter.
Source = Any
# The tensor of a handle, and whether it is nobody else's.
Read = Callable[[Source], tuple[Tensor, bool]]
SMALL: Final = 16  # a parameter is copied beside a result that is so many times larger


@dataclass(frozen=True, eq=False)
class Derivation:
    """How a storage was computed. Holds handles and no node: a node holds handles itself, and would never be freed.

    sure: nobody wrote over the result. An operation in place does, and nothing tells it from what came after; nor what was done
    to it before it was cloned.
    """

    operator: Operator
    sources: tuple[Source, ...]
    arguments: tuple[Any, ...]
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: Any
    sure: bool = True

    @property
    def roundings(self) -> int:
        """How often elements are rounded on the way from what is kept: once here, once more where the scale was, and in sources
        that are derived themselves.
        """
        copies = (one.entry.copy for one in self.sources if hasattr(one, "entry"))
        return 1 + (self.narrow > 0) + sum(copy.derivation.roundings for copy in copies if isinstance(copy, Derived))

    @property
    def narrow(self) -> float:
        """By which share of themselves statistics were rounded to a type that is narrower than what they were computed in: torch
        keeps those of a norm in bfloat16 as bfloat16. 0 where they are not.
        """
        types = (_type_of(self.sources[i]) for i in self.operator.statistics)
        return max((torch.finfo(one).eps / 2 for one in types if one.itemsize < torch.float32.itemsize), default=0.0)

    def run(self, read: Read) -> Tensor:
        """The storage again, 1-D."""
        with torch.no_grad():
            found = [(one, False) if isinstance(one, torch.Tensor) else read(one) for one in self.sources]
            first, mine = found[0]
            over = self.operator.over if mine and first.dtype == self.dtype else None
            out = (over or self.operator.run)([t for t, _ in found], self.arguments)
            if (out.dtype, tuple(out.shape), out.stride()) != (self.dtype, self.shape, self.strides):
                out = torch.empty_strided(self.shape, self.strides, dtype=self.dtype, device=out.device).copy_(out)
            return out.as_strided((out.numel(),), (1,), 0)


@dataclass(frozen=True, eq=False)
class Derived:
    """Instead of a storage."""

    derivation: Derivation
    read: Read

    @property
    def nbytes(self) -> int:
        """Copies of parameters; the rest is kept for others."""
        own = (one for one in self.derivation.sources if isinstance(one, torch.Tensor))
        return sum(int(one.numel()) * int(one.element_size()) for one in own)

    @property
    def handles(self) -> list[Source]:
        """Of ours, which are read before this is."""
        return [one for one in self.derivation.sources if not isinstance(one, torch.Tensor)]

    def decode(self, read: Read | None = None) -> Tensor:
        """The storage, 1-D. read: instead of its own way to its sources."""
        return self.derivation.run(read or self.read)


def derivation_of(t: Tensor, ours: tuple[type, ...], plain: Callable[[Tensor], Source]) -> Derivation | None:
    """How the whole storage of `t` was computed, if that can be done again. For a pack hook, where `t` still has its history.

    ours: classes of our handles; others' hooks may have saved the operation's sources. A torch that does not tell what a node
    holds would call their unpack function, which may compute a whole part of the model again. plain: our handle of a parameter.
    """
    if not SLOTS_TOLD:
        return None
    base = t if base_of(t) is None else base_of(t)
    node = computed_by(base)
    operator = OPERATORS.get(node.name()) if node is not None else None
    # It is not the operation's first result, or not all that lies there, or something else may be in it by now.
    if operator is None or not _fills(base) or (version_of(base) and (base_of(t) is not None or not operator.in_place)):
        return None
    sources = [held(node, slot) for slot in operator.slots]
    leaves = [parameter_at(node, number) for number in operator.leaves]
    if any(len(one) != 1 or not isinstance(one[0], ours) for one in sources) or any(leaf is None for leaf in leaves):
        return None
    handles = (*(one[0] for one in sources), *map(plain, leaves))
    if not all(_numbers(handles[i]) for i in operator.statistics):
        return None  # of its own it has none in evaluation mode
    arguments = tuple(argument(node, name, None) for name in operator.arguments)
    sure = not (version_of(base) or cloned(base))
    return Derivation(operator, handles, arguments, tuple(base.shape), base.stride(), base.dtype, sure)


def cast_of_parameter(t: Tensor, ours: Callable[[Tensor], Source]) -> Derivation | None:
    """The whole storage of `t` as a parameter in another type; ours: our handle of a parameter."""
    base = t if base_of(t) is None else base_of(t)
    weight = cast_from(base)
    if type(weight) is not torch.nn.Parameter or version_of(base) or not _fills(base):
        return None
    return Derivation(CAST, (ours(weight),), (), tuple(base.shape), base.stride(), base.dtype)


def _fills(t: Tensor) -> bool:
    """Each place of its storage is one of its elements."""
    span = 1 + sum((size - 1) * stride for size, stride in zip(t.shape, t.stride(), strict=True))
    return bool(span == t.numel() and t.untyped_storage().nbytes() == t.numel() * t.element_size())


def _type_of(source: Source) -> Any:
    return source.tensor.dtype if hasattr(source, "tensor") else source.dtype


def _numbers(source: Source) -> int:
    return int(torch.Size(source.tensor.shape if hasattr(source, "tensor") else source.shape).numel())


def with_own_parameters(derivation: Derivation) -> Derivation | None:
    """With copies in the place of parameters, which may be stepped, or gathered parts that are let go; None where one is large
    or was changed.
    """
    own = tuple(_own(one, derivation) if hasattr(one, "tensor") else one for one in derivation.sources)
    return None if any(one is None for one in own) else replace(derivation, sources=own)


def _own(plain: Any, derivation: Derivation) -> Tensor | None:
    t = plain.tensor
    if version_of(t) != plain.version or SMALL * t.numel() > torch.Size(derivation.shape).numel():
        return None
    return t.detach().clone()
