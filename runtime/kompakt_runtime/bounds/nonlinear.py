"""Nonlinear operations whose saved inputs are packed if that is asked for, and what the errors do to the gradients below.

How far errors reach is measured, not derived from the operation's kind: on measured steps its backward function runs once more,
on inputs with as much noise as the bound allows.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary, ref

import torch

from kompakt_runtime.bounds import layer as bounds
from kompakt_runtime.bounds.ends import Ends
from kompakt_runtime.bounds.flow import Flow
from kompakt_runtime.bounds.own_weight import OwnWeight
from kompakt_runtime.bounds.passed_on import PassedOn
from kompakt_runtime.bounds.site import Site
from kompakt_runtime.bounds.sites import Sites
from kompakt_runtime.compat.graph import current_node, held
from kompakt_runtime.saved.noise import Noise, absolute_sum, handed_on, slices, wide
from kompakt_runtime.scope.calls import Call

Tensor = Any
Node = Any


class Operation:
    """One nonlinear operation of one module. `bound`: in force, None before it was measured; sums as 0-dim tensors."""

    def __init__(self, name: str, place: int, module: Any) -> None:
        self.name, self.place = name, place
        self._module = ref(module)
        self.bound: float | None = None
        self.used = 0.0  # the bound that the figures below belong to
        self.observing = False
        self.sampled = False  # as a Site; here all are measured
        self.weights: list[OwnWeight] = []  # by their number; compiled code may make the gradients of several
        self._clear()

    def _clear(self) -> None:
        self.magnitude: Tensor = None  # sum of |input|
        self.deviation: Tensor = None  # of nonzero numbers; the smallest of an input
        self.elements = 0
        # For each gradient that goes on: its number, sum of squares of what noise did to it, and of it.
        self.onward: list[int] = []
        self.moved: Tensor = None
        self.size: Tensor = None
        for one in self.weights:
            one.clear()
        # By layer whose product reads what the input is made into: sums of squares of what noise did to that, and of it.
        self.read_by: dict[Any, Tensor] = {}
        self.passed_on: PassedOn | None = None  # of compiled code
        self.over: float | None = None  # its error in the gradients over what the linear layers allow, since their step
        self.waited = False

    def bound_for(self, x: Tensor, target: float, operations: int, deviation: float | None = None) -> float | None:
        """The bound in force; before the first measured step is over one from `x` itself, which is read back for it.

        deviation: 1 where bounds count in what `x` deviates by.
        """
        if self.bound is not None:
            return self.bound
        if not self.observing:
            return None
        deviation = float(torch.std(x, correction=0)) if deviation is None else deviation
        return bounds.first_nonlinear_bound(deviation, target, operations)

    def see_input(self, x: Tensor, bound: float, relative: bool = False) -> None:
        """Of several inputs of one step the widest bound is what is judged. relative: it counts in what `x` deviates by."""
        self.used = max(self.used, bound)
        one = x.new_ones((), dtype=wide(x))
        self.magnitude = _plus(self.magnitude, one * x.numel() if relative else absolute_sum(x))
        deviation = one if relative else _deviation(x)
        self.deviation = deviation if self.deviation is None else torch.minimum(self.deviation, deviation)
        self.elements += x.numel()

    def see(self, node: Node, exact: tuple[Tensor, ...], noisy: tuple[Tensor, ...]) -> None:
        """The gradients that the node's backward function gave, and those that it gives with noise in its inputs."""
        both_ways = enumerate(zip(exact, noisy, strict=True))
        pairs = [(a, handed_on(b, a), _leaf(node, i), i) for i, (a, b) in both_ways if a is not None]
        rows = {i: torch.stack((_moved(a, b), _squares(a))) for a, b, leaf, i in pairs if leaf is None}
        if rows:
            self.onward, both = list(rows), torch.stack(list(rows.values()))
            self.moved, self.size = _plus(self.moved, both[:, 0]), _plus(self.size, both[:, 1])
        own = next(((a, b, leaf) for a, b, leaf, _ in pairs if leaf is not None), None)
        if own is not None:
            # The first is the weight's; after it may come a bias', which does not read the inputs.
            self._see_weight(0, own[2], own[0], own[1] - own[0])

    def see_again(
        self,
        deltas: Sequence[tuple[Tensor, Tensor]],
        leaves: Sequence[tuple[Any, Tensor, Tensor]],
        operands: Sequence[tuple[Any, Tensor, Tensor]],
        passed_on: PassedOn | None = None,
    ) -> None:
        """As `see`, of what stands for the operation in compiled code: pairs of what it gave and gives with noise in its inputs.
        leaves: with the parameter whose gradient it is; operands: with the site whose product reads it; passed_on: of
        errors in what it was given.
        """
        if deltas:
            both = torch.stack([torch.stack((_moved(a, b), _squares(a))) for a, b in deltas])
            self.onward = list(range(len(deltas)))
            self.moved, self.size = _plus(self.moved, both[:, 0]), _plus(self.size, both[:, 1])
        for number, (weight, a, b) in enumerate(leaves):
            if weight is not None:
                self._see_weight(number, weight, a, b - a)
        for site, a, b in operands:
            self.read_by[site] = _plus(self.read_by.get(site), torch.stack((_moved(a, b), _squares(a))).double())
        self.passed_on = self.passed_on if passed_on is None else passed_on.beside(self.passed_on)

    def _see_weight(self, number: int, weight: Any, gradient: Tensor, moved: Tensor) -> None:
        self.weights += [OwnWeight() for _ in range(len(self.weights), number + 1)]
        self.weights[number].see(self._module(), weight, gradient, moved)

    @property
    def seen(self) -> bool:
        """Did a measured backward pass run, and its forward pass too? Of a norm on the raw batch it tells of the weight only."""
        gave = self.moved is not None or any(one.moved is not None for one in self.weights) or bool(self.read_by)
        return self.magnitude is not None and gave

    def relative(self) -> Tensor:
        """Squared relative errors of the gradients that go on, by number; None where none does."""
        if self.moved is None:
            return None
        every = self.moved.new_zeros(max(self.onward) + 1, dtype=torch.float64)
        every[self.onward] = torch.where(self.moved == 0, 0, self.moved / self.size).double()
        return every

    def allow(self, over: float) -> None:
        """A measured step of linear layers is over, and this is the error of the gradients over what they allow."""
        self.waited = self.over is not None
        self.over = over

    def figures(self) -> Tensor | None:
        """(the largest error of a weight's gradient over its mean |momentum|, the widest bound whose errors are like noise, how
        large the gradients were that could be off) as one tensor; None if a pass or a step is missing: of linear layers, or of a
        weight.

        Where most numbers lie within one step of the copy, as probabilities that hardly differ, all have the same error.
        """
        if not self.seen or self.over is None:
            return None
        for one in self.weights:
            if one.waits and self.waited and one.optimizer() is None:
                # Nobody came to step it. As for unknown optimizers, the gradient itself serves.
                one.judge(1.0)
        if any(one.waits for one in self.weights):
            return None
        errors = [one.error for one in self.weights if one.error is not None]
        # Where gradient and noise are zero, nothing is known: the others count.
        own = torch.stack([self.magnitude.new_zeros((), dtype=torch.float64), *errors]).nan_to_num(0, math.inf).max()
        widest = torch.minimum(self.magnitude / self.elements, self.deviation / 2).double()
        return torch.stack([own, widest, self._gradients(own)])

    def _gradients(self, like: Tensor) -> Tensor:
        """Sums of what is zero only where all of it is."""
        onward = like.new_zeros(()) if self.size is None else self.size.sum().double()
        onward = onward + sum(both[1] for both in self.read_by.values())
        return onward + sum(one.gradient.abs().sum().double() for one in self.weights if one.gradient is not None)

    def finish(self) -> None:
        """Drops the sums."""
        self._clear()
        self.used = 0.0


class Operations:
    """All operations that were seen, by module, kind, and number among those of its kind in one call."""

    def __init__(self, sites: Sites, failed: Callable[[str], None]) -> None:
        """failed: counts a reason why nothing was measured in some backward pass."""
        self._sites, self._failed = sites, failed
        self._known: WeakKeyDictionary[Any, dict[tuple[str, int], Operation]] = WeakKeyDictionary()
        self.noise = Noise()
        self.flow = Flow(failed)
        self.ends = Ends(sites, self.noise)
        self.flow.seen = self.ends.look
        # Called with each new operation.
        self.made: Callable[[Operation], None] = lambda _: None

    @property
    def found(self) -> bool:
        """Was there any so far?"""
        return bool(self._known)

    @property
    def expected(self) -> int:
        """More than there may be, while they are not known yet: modules that were named, each with one."""
        return self._sites.named

    def __iter__(self) -> Iterator[Operation]:
        return (operation for found in list(self._known.values()) for operation in found.values())

    def forget(self) -> None:
        """Drops what was seen, but where only the step of another optimizer is missing."""
        for operation in self:
            if operation.over is None:
                operation.finish()

    def of(self, call: Call, kind: str) -> Operation:
        """The operation of this kind that was found next in a module's call. kind: with the slot where it reads several."""
        call.kinds[kind] += 1
        known = self._known.setdefault(call.module, {})
        key = (kind, call.kinds[kind])
        if key not in known:
            suffix = kind if key[1] == 1 else f"{kind} {key[1]}"
            known[key] = Operation(f"{call.name} [{suffix}]", next(self._sites.places), call.module)
            self.made(known[key])
        return known[key]

    def compiled(self, site: Site, kind: str, number: int) -> Operation:
        """The operation in compiled code of which nothing is known but a parameter beside it, and its number among those."""
        module = site.module()
        known, key = self._known.setdefault(module, {}), (f"{kind} of {site.name}", -number)
        if key not in known:
            suffix = kind if number == 1 else f"{kind} {number}"
            known[key] = Operation(f"{site.name} [{suffix}]", next(self._sites.places), module)
            self.made(known[key])
        return known[key]

    def watch(self, operation: Operation, node: Node, noise: dict[str, Any]) -> None:
        """On a measured step: measures what errors as wide as these do, once the node's backward function has run."""
        # Named by slot: a hook that held handles would keep copies alive after the backward pass has read them.
        node.register_hook(partial(self._measure, operation, noise))
        self.flow.source(operation, node)

    def _measure(
        self, operation: Operation, noise: dict[str, Any], exact: tuple[Tensor, ...], deltas: tuple[Tensor, ...]
    ) -> None:
        if not operation.observing:
            return
        try:
            node = current_node()
            with torch.no_grad():
                wide_by = {one: bound for slot, bound in noise.items() for one in held(node, slot)}
                noisy = self.noise.while_added(wide_by, node, deltas)
                operation.see(node, exact, noisy)
                self.flow.see_gain(node, deltas, exact, self.noise)
        except Exception as problem:  # a measurement must not end a backward pass
            operation.finish()
            self._failed(f"ObserveFailed{type(problem).__name__}")


def layer_target(target: float, operations: Operations | None, steps: int) -> float:
    """What linear operands alone may do: half of the variance where nonlinear ones have the other half, or may yet be found in
    the first step.
    """
    shared = operations is not None and (not steps or operations.found)
    return target * (bounds.HALF if shared else 1)


def _leaf(node: Node, number: int) -> Any:
    """The parameter that the node's gradient goes to, None where it goes on."""
    behind = node.next_functions[number][0]
    return getattr(behind, "variable", None) if behind is not None else None


def _moved(exact: Tensor, noisy: Tensor) -> Tensor:
    parts = zip(slices(exact), slices(noisy), strict=True)
    return torch.stack([_squares(b - a) for a, b in parts]).sum()


def _deviation(x: Tensor) -> Tensor:
    """Of the numbers that are not zero: copies keep zeros as they are, and dropout makes some."""
    count = torch.count_nonzero(x).clamp(min=1)
    mean = x.sum(dtype=wide(x)) / count
    squares = torch.stack([_squares(part - mean) for part in slices(x)]).sum(dtype=torch.float64)
    zeros = (x.numel() - count) * mean.double().square()  # what they add to the squares
    return ((squares - zeros).clamp(min=0) / count).sqrt().to(mean.dtype)


def _squares(t: Tensor) -> Tensor:
    return torch.linalg.vector_norm(t, dtype=wide(t)).square()


def _plus(total: Tensor, more: Tensor) -> Tensor:
    return more if total is None else total + more
