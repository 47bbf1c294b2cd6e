"""What an optimizer keeps of a weight's gradients, told by the names and kinds of what is in its state and not by its class.

Names as torch.optim, timm, transformers, torchao and bitsandbytes have them.
"""

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import torch

Tensor = Any
Group = dict[str, Any]
# A mean over more steps counts as if it were over so many: what the sum is with SGD's usual momentum of 0.9.
MOST_STEPS: Final = 10.0


@dataclass(frozen=True)
class Kept:
    """momentum: a fading sum of gradients, None where the step follows the gradient itself; squares: mean squares by coordinate,
    by whose root the step is divided; divided: the momentum is, already; spectral: the step's singular values are all the same.
    """

    momentum: Tensor = None
    squares: Tensor = None
    divided: bool = False
    spectral: bool = False
    eps: float = 0.0


class UnknownState(Exception):
    """The optimizer keeps something, in no form that is known here: the gradient must serve."""


def kept(optimizer: Any, weight: Any) -> Kept:
    """On tensors of this rank's part of the weight."""
    state, group = optimizer.state.get(weight, {}), group_of(optimizer, weight)
    for names, read in FORMS:
        if all(isinstance(state.get(name), torch.Tensor) for name in names):
            return read(_State(state, weight, optimizer), group)
    if any(isinstance(t, torch.Tensor) and t.numel() > 1 for t in state.values()):
        raise UnknownState
    return Kept()


def group_of(optimizer: Any, weight: Any) -> Group:
    return next(group for group in optimizer.param_groups if any(weight is other for other in group["params"]))


def local(t: Tensor) -> Tensor:
    """Of a sharded tensor this rank's part, for nobody must wait for other ranks here."""
    t = t.detach()
    return t.to_local() if hasattr(t, "to_local") else t


class _State:
    """The state of one weight, as plain tensors of its shape."""

    def __init__(self, state: dict[str, Any], weight: Any, optimizer: Any) -> None:
        self._state, self._weight, self._shape = state, weight, local(weight).shape
        self.rule = str(getattr(optimizer, "optimizer_name", ""))

    def __getitem__(self, name: str) -> Tensor:
        return self._as_the_weight(_plain(local(self._state[name])))

    def number(self, name: str) -> Tensor:
        return self._state[name]

    @property
    def gradient(self) -> Tensor:
        return self._as_the_weight(_plain(local(self._weight.grad)))

    def blocks(self, number: int) -> Tensor:
        """bitsandbytes' first or second state: of 8 bits in blocks, each with a factor of its own, or as it is."""
        t = self._state[f"state{number}"]
        if t.dtype != torch.uint8:
            return self._as_the_weight(t.detach())
        library = sys.modules.get("bitsandbytes.functional")
        factors = self._state.get(f"absmax{number}")
        if library is None or factors is None:
            raise UnknownState
        size = 1 << math.ceil(math.log2(t.numel() / factors.numel()))
        code = self._state[f"qmap{number}"]
        return self._as_the_weight(library.dequantize_blockwise(t, absmax=factors, code=code, blocksize=size))

    def outer(self, rows: str, columns: str) -> Tensor:
        """From means over rows and over columns of the last two dimensions, with or without a dimension of size 1 for each."""
        if len(self._shape) < 2:
            raise UnknownState
        row = local(self._state[rows]).reshape(*self._shape[:-1], 1)
        column = local(self._state[columns]).reshape(*self._shape[:-2], 1, self._shape[-1])
        return row / row.mean(-2, keepdim=True) * column

    def _as_the_weight(self, t: Tensor) -> Tensor:
        if t.shape != self._shape:
            raise UnknownState  # as where it is kept in fewer dimensions
        return t if t.dtype == torch.float64 else t.float()


def _plain(t: Tensor) -> Tensor:
    """A tensor class that keeps fewer bits has a function of its own to widen them."""
    return t.dequantize() if type(t).dequantize is not torch.Tensor.dequantize else t


def _steps(beta: Any) -> float:
    """What a fading mean counts as a sum, 1 / (1 - beta), at most MOST_STEPS; 1 where the optimizer does not say as Adam does."""
    return min(1 / (1 - float(beta)), MOST_STEPS) if isinstance(beta, int | float) and 0 <= beta < 1 else 1.0


def _first_beta(group: Group) -> Any:
    betas = group.get("betas")
    return betas[0] if isinstance(betas, list | tuple) and betas else None


def _eps(group: Group) -> float:
    eps = group.get("eps")
    return float(eps) if isinstance(eps, int | float) else 0.0


def _divided_mean(squares: str, power: int = 1) -> "Form":
    """power: of what is kept, to get squares."""
    return lambda state, group: Kept(state["exp_avg"] * _steps(_first_beta(group)), state[squares] ** power, eps=_eps(group))


def _nesterov(state: _State, group: Group) -> Kept:
    """NAdam steps by a share of the gradient itself and a share of the mean, which has a share of the gradient too.

    Shares as in torch/optim/nadam.py; `mu_product` is of all steps so far. A gradient's error enters by both.
    """
    beta, product, step = float(_first_beta(group)), float(state.number("mu_product")), float(state.number("step"))
    now, after = (beta * (1 - 0.5 * 0.96 ** (at * float(group["momentum_decay"]))) for at in (step, step + 1))
    of_gradient, of_mean = (1 - now) / (1 - product), after / (1 - product * after)
    moved = of_gradient * state.gradient + of_mean * state["exp_avg"]
    share = of_gradient + of_mean / _steps(beta)
    return Kept(moved / share, state["exp_avg_sq"], eps=_eps(group))


def _gradient_over(squares: str) -> "Form":
    return lambda state, group: Kept(squares=state[squares], eps=_eps(group))


def _divided_before(state: _State, group: Group) -> Kept:
    """RMSprop sums up steps, not gradients; one of timm's sums them up times the learning rate."""
    rate = float(group["lr"]) if group.get("lr_in_momentum") else 1.0
    return Kept(state["momentum_buffer"] / rate, state["square_avg"], divided=True, eps=_eps(group))


def _mean(state: _State, group: Group) -> Kept:
    return Kept(state["exp_avg"] * _steps(_first_beta(group)))


def _buffer(state: _State, group: Group) -> Kept:
    """SGD's is a sum. Muon's has the same name and is a mean, in torch (`lerp_` in torch/optim/_muon.py) and before."""
    if "ns_steps" in group or group.get("use_muon"):
        return Kept(state["momentum_buffer"] * _steps(group.get("momentum")), spectral=True)
    return Kept(state["momentum_buffer"])


def _blocks(state: _State, group: Group) -> Kept:
    return Kept(state.blocks(1) * _steps(_first_beta(group)), state.blocks(2), eps=_eps(group))


def _one_of_blocks(state: _State, group: Group) -> Kept:
    if state.rule == "lion":
        return Kept(state.blocks(1) * _steps(_first_beta(group)))
    if state.rule == "momentum":
        return Kept(state.blocks(1))
    raise UnknownState


Form = Callable[[_State, Group], Kept]
# The first of which all names are there. An exp_avg beside RMS or factors is a mean of steps, times a learning rate that changes.
FORMS: Final[tuple[tuple[tuple[str, ...], Form], ...]] = (
    (("row_var", "col_var"), lambda state, group: Kept(squares=state.outer("row_var", "col_var"))),
    (("exp_avg_sq_row", "exp_avg_sq_col"), lambda state, group: Kept(squares=state.outer("exp_avg_sq_row", "exp_avg_sq_col"))),
    (("variance",), _gradient_over("variance")),
    (("exp_avg", "max_exp_avg_sq"), _divided_mean("max_exp_avg_sq")),
    (("exp_avg", "exp_avg_var"), _divided_mean("exp_avg_var")),
    (("exp_avg", "exp_inf"), _divided_mean("exp_inf", power=2)),
    (("exp_avg", "exp_avg_sq", "mu_product"), _nesterov),
    (("exp_avg", "exp_avg_sq"), _divided_mean("exp_avg_sq")),
    (("momentum_buffer", "square_avg"), _divided_before),
    (("exp_avg_sq",), _gradient_over("exp_avg_sq")),
    (("square_avg",), _gradient_over("square_avg")),
    (("sum",), _gradient_over("sum")),
    (("momentum_buffer",), _buffer),
    (("exp_avg",), _mean),
    (("state1", "state2"), _blocks),
    (("state1",), _one_of_blocks),
)
