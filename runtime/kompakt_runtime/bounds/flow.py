"""How much of the error that operations leave in their gradients arrives at each linear layer. Seen on measured steps.

An error in one branch counts for less where a larger gradient joins it, as on a residual path. So where gradients join, the size
of the sum and of each part is read: a part's error, relative to the part, is relative to the sum as much smaller as the part is.
Between joins errors keep their relative size, unless an operation that is measured shows that it takes more of noise than of the
gradient: attention's scores depend on differences of values, which are small where values hardly differ.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Final

import torch

from kompakt_runtime.compat.graph import number_of, youngest
from kompakt_runtime.saved.noise import Noise, handed_on, wide
from kompakt_runtime.uses.walk import ACCUMULATOR, Walk

Tensor = Any
Node = Any
Operation = Any
Site = Any
End = Any
NOWHERE: Final = -1  # a parameter, or nobody wants the gradient
MOST_PASSES: Final = 32  # of one step that are kept; where more gradients accumulate, the last ones speak for all


class Flow:
    """The graph of one measured step by its nodes' numbers, and squared sizes of gradients where they join, as 0-dim tensors.

    Nothing here holds a node: one that is held keeps all that it saved.
    """

    def __init__(self, failed: Callable[[str], None]) -> None:
        """failed: counts a reason why nothing was measured in some backward pass."""
        self._failed = failed
        # Called with the new nodes of each forward pass.
        self.seen: Callable[[Iterable[Node], Flow], None] = lambda *_: None
        self.clear()

    def clear(self) -> None:
        self._walk = Walk()
        self._unseen = False  # was anything noted since the graph was looked at?
        self._passes = 0
        self._told = False
        self._targets: dict[int, tuple[int, ...]] = {}
        self._joined: dict[int, Tensor] = {}
        self._parts: dict[tuple[int, int], Tensor] = {}
        self._gains: dict[tuple[int, int], Tensor] = {}
        self._layers: dict[int, list[Site]] = {}
        self._sources: dict[int, list[Operation]] = {}
        self._ends: dict[tuple[int, int], End] = {}

    def end(self, end: End, node: Node, number: int) -> None:
        """The parameter gets this of the node's gradients."""
        self._ends[number_of(node), number] = end

    def measures(self, node: Node) -> bool:
        """Will it be seen what the node's backward function does to noise?"""
        return number_of(node) in self._sources

    def layer(self, site: Site, node: Node) -> None:
        """This node makes the layer's weight gradient from the gradient that arrives."""
        self._begin()
        self._layers.setdefault(number_of(node), []).append(site)

    def source(self, operation: Operation, node: Node) -> None:
        """This node's backward function will bring errors in."""
        self._begin()
        self._sources.setdefault(number_of(node), []).append(operation)

    def _begin(self) -> None:
        if self._told or (self._passes == MOST_PASSES and not self._unseen):
            self.clear()
        self._unseen = True

    def look(self, roots: Iterable[Node]) -> None:
        """The forward pass is over, and what was noted lies behind these nodes."""
        if not self._unseen:
            return
        self._unseen, self._passes = False, self._passes + 1
        fresh = {number_of(node): node for node in self._walk.fresh(roots, 0, youngest() + 1)}
        self._targets.update({number: _targets(node) for number, node in fresh.items()})
        counts = Counter(target for targets in self._targets.values() for target in targets)
        joins = {target for target, count in counts.items() if count > 1 and target != NOWHERE}
        for number, node in fresh.items():
            if number in joins:
                node.register_prehook(partial(self._see_sum, number))
            if handed := [i for i, target in enumerate(self._targets[number]) if target in joins]:
                node.register_hook(partial(self._see_parts, number, handed))
        self.seen(fresh.values(), self)

    def _see_sum(self, number: int, gradients: tuple[Tensor, ...]) -> None:
        with torch.no_grad():
            self._add(self._joined, number, [one for one in gradients if one is not None])

    def _see_parts(self, number: int, handed: list[int], gradients: tuple[Tensor, ...], _: tuple[Tensor, ...]) -> None:
        with torch.no_grad():
            for i in handed:
                self._add(self._parts, (number, i), [gradients[i]] if gradients[i] is not None else [])

    def _add(self, sums: dict[Any, Tensor], key: Any, gradients: Sequence[Tensor]) -> None:
        try:
            for one in gradients:
                square = _squares([one])
                sums[key] = square if key not in sums else sums[key] + square
        except Exception as problem:  # a measurement must not end a backward pass; without figures a join shrinks nothing
            sums.pop(key, None)
            self._failed(f"ObserveFailed{type(problem).__name__}")

    def see_gain(
        self, node: Node, deltas: tuple[Tensor, ...], exact: tuple[Tensor, ...], noise: Noise, even: bool = False
    ) -> None:
        """Runs the node's backward function on noise alone: by what the square of an error in its gradient grows in each of those
        that it hands on, relative to them. Once for each node. even: of noise that is as large everywhere.
        """
        number = number_of(node)
        if number not in self._targets or any((number, i) in self._gains for i in range(len(exact))):
            return
        errors, passed = noise.alone(node, deltas, even)
        before = _squares(errors) / _squares(deltas)
        for i, (error, gradient) in enumerate(zip(passed, exact, strict=True)):
            if gradient is not None:
                self._gains[number, i] = _squares([handed_on(error, gradient)]) / _squares([gradient]) / before

    def known(self) -> set[Any]:
        """The parameters, layers and operations of which each place where they ran was seen in the graph."""
        noted = [(number, what) for every in (self._layers, self._sources) for number, all_ in every.items() for what in all_]
        noted += [(number, end) for (number, _), end in self._ends.items()]
        return {what for _, what in noted} - {what for number, what in noted if number not in self._targets}

    def arrived(self, sources: Sequence[Operation], relative: Sequence[Sequence[float]]) -> dict[Any, Tensor]:
        """For each layer the squared relative error of its output's gradient by each of these operations; for each parameter that
        is noted itself, of its own.

        relative: for each operation the squared relative errors that it brings into each of its node's gradients. What was seen
        is given up with the next step's first note. Three reads from the device.
        """
        self._told = True
        sizes = _Sizes(_read(self._joined), _read(self._parts), _read(self._gains))
        nothing = torch.zeros(len(sources), dtype=torch.float64)
        row_of = {operation: row for row, operation in enumerate(sources)}
        coming: dict[int, Tensor] = {}
        found: dict[Any, Tensor] = {}
        for number in sorted(self._targets, reverse=True):  # what hands gradients on is younger than what takes them
            error = coming.pop(number, nothing)
            found.update({site: torch.maximum(found.get(site, nothing), error) for site in self._layers.get(number, ())})
            rows = [row_of[one] for one in self._sources.get(number, ()) if one in row_of] if sizes.ran(number) else []
            if rows or error is not nothing:
                for i, target in enumerate(self._targets[number]):
                    leaves = error * sizes.gain(number, i)
                    for row in rows:
                        leaves[row] += relative[row][i] if i < len(relative[row]) else 0.0
                    if (end := self._ends.get((number, i))) is not None:
                        found[end] = torch.maximum(found.get(end, nothing), leaves)
                    coming[target] = coming.get(target, nothing) + leaves * sizes.share(number, i, target)
        return found


@dataclass(frozen=True)
class _Sizes:
    """What was read of joins: squares of sums by node, of parts and gains by node and number of the gradient."""

    joined: dict[int, float]
    parts: dict[tuple[int, int], float]
    gains: dict[tuple[int, int], float]

    @cached_property
    def gained(self) -> set[int]:
        return {number for number, _ in self.gains}

    def ran(self, number: int) -> bool:
        """Did the operation's backward function run? Some forward passes are thrown away."""
        return number in self.gained

    def gain(self, number: int, i: int) -> float:
        gain = self.gains.get((number, i), 1.0)
        return max(gain, 1.0) if math.isfinite(gain) else 1.0

    def share(self, number: int, i: int, target: int) -> float:
        """What part of a sum's square this gradient's is: 1 where nothing else joins, or it was not seen."""
        part, whole = self.parts.get((number, i)), self.joined.get(target)
        share = part / whole if part is not None and whole else 1.0
        return share if math.isfinite(share) else 1.0


def _targets(node: Node) -> tuple[int, ...]:
    numbers = (NOWHERE if behind is None else number_of(behind) for behind, _ in node.next_functions)
    return tuple(NOWHERE if number >= ACCUMULATOR else number for number in numbers)


def _squares(gradients: Iterable[Tensor]) -> Tensor:
    return sum(torch.linalg.vector_norm(one, dtype=wide(one)).square().double() for one in gradients if one is not None)


def _read(sums: dict[Any, Tensor]) -> dict[Any, float]:
    if not sums:
        return {}
    first = next(iter(sums.values()))
    return dict(zip(sums, torch.stack([one.to(first.device) for one in sums.values()]).tolist(), strict=True))
