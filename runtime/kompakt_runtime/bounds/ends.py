"""What trained parameters bear of errors in the gradients that reach them, where no linear operand of a parameter is known.

Learned tokens, prefixes, scales and biases beside frozen layers have no operand whose bound says how much error the optimizer
bears. Their gradients say it themselves: an error of a share of the gradient moves the parameter by that share of it. On the way
a sum over examples may take away more of the gradient than of the error, and a cut may leave a part where the gradient is small,
so what each of these does to noise that is as large everywhere is measured.
"""

import math
from collections.abc import Iterable
from functools import partial
from typing import Any, Final
from weakref import ref

import torch

from kompakt_runtime.bounds.flow import Flow
from kompakt_runtime.bounds.layer import observed
from kompakt_runtime.bounds.patience import TRIES
from kompakt_runtime.bounds.sites import Sites
from kompakt_runtime.bounds.spread import Spread
from kompakt_runtime.bounds.sums import mean_magnitude
from kompakt_runtime.bounds.targets import error_of_a_step
from kompakt_runtime.compat.graph import behind, current_node, number_of
from kompakt_runtime.saved.noise import Noise, wide
from kompakt_runtime.uses.parameters import ACCUMULATE, PASSING

Tensor = Any
Node = Any
# What sums or cuts gradients and may run once more: written in torch, with no effect but its result.
SUMMING: Final = frozenset(
    f"{name}Backward0"
    for name in (
        *("Add", "Sub", "Mul", "Div", "Addmm", "Convolution"),
        *("Embedding", "Expand", "Repeat", "Index", "IndexSelect", "Gather", "Cat"),
    )
)


class End:
    """One parameter. tolerance: the error of its gradient that it bears, as a share of the gradient; 0 before it was measured."""

    place = -1  # before all operations

    def __init__(self, weight: Any) -> None:
        self.weight = ref(weight)
        self.tolerance = 0.0
        self.squares: Tensor = None  # of what arrived, averaged over elements, summed over passes
        self.before: Tensor = None  # mean |gradient| after the last pass

    def see(self, number: int, exact: tuple[Tensor, ...], _: tuple[Tensor, ...]) -> None:
        gradient = exact[number]
        if gradient is not None:
            square = torch.linalg.vector_norm(gradient, dtype=wide(gradient)).square() / gradient.numel()
            self.squares = square if self.squares is None else self.squares + square

    def accumulated(self, weight: Tensor) -> None:
        self.before = mean_magnitude(weight.grad) if weight.grad is not None else None


class Ends:
    """All parameters that get a gradient, of models that train no linear layer."""

    def __init__(self, sites: Sites, noise: Noise) -> None:
        self._sites, self._noise = sites, noise
        self._known: dict[int, End] = {}
        self._hooks: dict[int, Any] = {}
        self._steps = self._tries = 0
        self._spoilt = False
        self._asked: set[int] = set()

    @property
    def observing(self) -> bool:
        """Is the next step measured? In the first one layers become known one by one."""
        return not self._sites.known and (observed(self._steps) or 0 < self._tries < TRIES)

    def look(self, fresh: Iterable[Node], flow: Flow) -> None:
        """The forward pass is over; these nodes are new."""
        if not self.observing:
            return
        nodes = list(fresh)
        above: dict[int, list[Node]] = {}
        for node in nodes:
            for lower in behind(node):
                above.setdefault(number_of(lower), []).append(node)
            self._see_ends(node, flow)
        for node in nodes:
            if any(one.name() == ACCUMULATE for one in behind(node)):
                self._see_sums(node, above, flow)

    def _see_ends(self, node: Node, flow: Flow) -> None:
        for number, (lower, _) in enumerate(node.next_functions):
            # Other leaves are nobody's to step, as what a checkpoint is given.
            if lower is not None and lower.name() == ACCUMULATE and isinstance(lower.variable, torch.nn.Parameter):
                end = self._of(lower.variable)
                flow.end(end, node, number)
                node.register_hook(partial(end.see, number))

    def _of(self, weight: Any) -> End:
        end = self._known.get(id(weight))
        if end is None or end.weight() is not weight:
            end = self._known[id(weight)] = End(weight)
        if id(weight) not in self._hooks:
            self._hooks[id(weight)] = weight.register_post_accumulate_grad_hook(end.accumulated)
        return end

    def _see_sums(self, node: Node, above: dict[int, list[Node]], flow: Flow) -> None:
        """The operations that make the parameter's gradient, and what sums or cuts the gradients that these are given.

        Without the first nothing is known; further up errors keep their relative size, as everywhere.
        """
        waiting = [(node, True)]
        while waiting:
            one, first = waiting.pop()
            name = one.name()
            self._spoilt |= first and not (name in SUMMING or name in PASSING or flow.measures(one))
            if (name in SUMMING or name in PASSING) and number_of(one) not in self._asked:
                self._asked.add(number_of(one))
                one.register_hook(partial(self._see_gain, flow))
                waiting += [(upper, first and name in PASSING) for upper in above.get(number_of(one), [])]

    def _see_gain(self, flow: Flow, exact: tuple[Tensor, ...], deltas: tuple[Tensor, ...]) -> None:
        try:
            with torch.no_grad():
                flow.see_gain(current_node(), deltas, exact, self._noise, even=True)
        except Exception:  # a measurement must not end a backward pass
            self._spoilt = True

    def stepped(self, optimizer: Any, target: float) -> list[End]:
        """An optimizer stepped that steps no linear layer. The parameters with what they bear; none where it cannot be told of
        all of them. One read from the device.
        """
        if self._sites.known or not self._known:
            return []
        observing = self.observing
        self._steps += 1
        found = self._bear(optimizer, target) if observing and not self._spoilt else []
        self._tries = 0 if found or not observing else self._tries + 1
        self._forget()
        return found

    def _bear(self, optimizer: Any, target: float) -> list[End]:
        mine = {id(weight) for group in optimizer.param_groups for weight in group["params"]}
        rows, ends = [], [end for end in self._known.values() if end.squares is not None]
        for end in ends:
            weight = end.weight()
            if weight is None or id(weight) not in mine or weight.grad is None or end.before is None:
                return []
            step = error_of_a_step(optimizer, weight, Spread()).size
            rows.append(torch.stack([one.double() for one in (step, end.before, mean_magnitude(weight.grad), end.squares)]))
        for end, row in zip(ends, torch.stack(rows).tolist() if rows else [], strict=True):
            end.tolerance = _tolerance(row, target)
        return ends if all(end.tolerance for end in ends) else []

    def _forget(self) -> None:
        for hook in self._hooks.values():
            hook.remove()
        self._known = {key: end for key, end in self._known.items() if end.weight() is not None}
        for end in self._known.values():
            end.squares = end.before = None
        self._hooks, self._spoilt, self._asked = {}, False, set()


def _tolerance(row: list[float], target: float) -> float:
    """As for layers, the ratio of gradients takes away loss scales and clipping; 0 where figures say nothing."""
    if not all(0 < one < math.inf for one in row):
        return 0.0
    step, before, after, squares = row
    return target * step * before / after / math.sqrt(squares)
