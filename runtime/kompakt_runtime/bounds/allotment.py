"""Which part of what linear layers bear each operation may take, so that all copies together need the fewest bits.

An error's square grows with the square of the bound, and halving a bound costs one bit an element. So of all bounds that no layer
bears too much of, those are best that make sum(elements * log(bound)) largest. Layers that nothing is short of have no say.
"""

import math
from collections.abc import Sequence
from typing import Any, Final

import torch

from kompakt_runtime.bounds import passed_on
from kompakt_runtime.bounds.ends import End
from kompakt_runtime.bounds.flow import Flow
from kompakt_runtime.bounds.nonlinear import Operation
from kompakt_runtime.bounds.site import Site

Tensor = Any
ROUNDS: Final = 100
MOST_ROUNDS: Final = 5000  # where these are not enough
ENOUGH: Final = 1.02  # no other bounds are larger by more than this on average, weighed by elements


def overs(operations: Sequence[Operation], sites: Sequence[Site | End], flow: Flow) -> list[float]:
    """For each operation its bound so far over the one that the measured layers allow it; nan where they say nothing."""
    layers = [site for site in sites if site.tolerance]
    if not layers or not operations:
        return [math.nan] * len(operations)
    effects = _effects(operations, layers, _relative(operations), flow)
    bears = torch.tensor([site.tolerance for site in layers], dtype=torch.float64).square()
    elements = torch.tensor([float(operation.elements) for operation in operations], dtype=torch.float64)
    sound = effects.isfinite().all(0)
    grows = allotted(torch.where(sound, effects, 0.0) / bears[:, None], elements)
    found: list[float] = torch.where(sound, grows.rsqrt(), math.nan).tolist()
    return found


def allotted(shares: Tensor, elements: Tensor) -> Tensor:
    """By what the square of each operation's bound may grow.

    shares: of what each layer (row) bears, the part that each operation (column) took, in squares. Where a price is put on each
    layer's square, an operation is best off where it pays in proportion to its elements; prices fall until no layer has something
    left that has a price. An operation that no layer feels may do what it likes.
    """
    felt = shares.sum(0) > 0
    grows = torch.full_like(elements, math.inf)
    if felt.any():
        grows[felt] = _at_best(shares[:, felt], elements[felt] / elements[felt].sum())
    return grows


def _at_best(shares: Tensor, weights: Tensor) -> Tensor:
    shares = shares[shares.sum(1) > 0]
    prices = shares.new_ones(len(shares))
    for number in range(MOST_ROUNDS):
        borne = shares @ (weights / (prices @ shares))
        # By Jensen's inequality no bounds that layers bear win more than the logarithm of this.
        if number >= ROUNDS and prices.sum() * borne.max() <= ENOUGH:
            break
        prices = prices * borne.sqrt()
    grows = weights / (prices @ shares)
    return grows / (shares @ grows).max()


def _effects(operations: Sequence[Operation], layers: Sequence[Site | End], relative: list[list[float]], flow: Flow) -> Tensor:
    """For each layer and operation the squared relative error in the gradient at the layer's output: as it was seen to arrive,
    else all of it at each layer before the operation, and at every layer if there is none before.
    """
    known, arrived = flow.known(), flow.arrived(operations, relative)
    whole = torch.tensor([max(errors, default=0.0) for errors in relative], dtype=torch.float64)
    places = torch.tensor([operation.place for operation in operations])
    seen = torch.tensor([operation in known for operation in operations])
    nothing = torch.zeros_like(whole)

    def elsewhere(site: Site | End) -> Tensor:
        return torch.where(seen & (site in known), arrived.get(site, nothing), torch.where(places > site.place, whole, nothing))

    passed = passed_on.arrived([one.passed_on for one in operations], relative, elsewhere)
    rows = [passed[site] if site in passed else elsewhere(site) for site in layers]
    effects = torch.stack(rows) + _through_operands(operations, layers)
    return torch.where((effects == 0).all(0), whole, effects)


def _through_operands(operations: Sequence[Operation], layers: Sequence[Site | End]) -> Tensor:
    """For each layer and operation the squared relative error of what the layer's product reads for its weight's gradient, which
    does as much to that as one of the gradient at its output. One read from the device.
    """
    effects = torch.zeros(len(layers), len(operations), dtype=torch.float64)
    row_of = {site: row for row, site in enumerate(layers)}
    found = [(row_of[site], i, both) for i, one in enumerate(operations) for site, both in one.read_by.items() if site in row_of]
    if found:
        sums = torch.stack([both.to(found[0][2].device) for _, _, both in found]).tolist()
        for (row, column, _), (moved, size) in zip(found, sums, strict=True):
            effects[row, column] = moved / size if size else 0.0
    return effects


def _relative(operations: Sequence[Operation]) -> list[list[float]]:
    """One read from the device."""
    tensors = [operation.relative() for operation in operations]
    some = [t for t in tensors if t is not None]
    if not some:
        return [[] for _ in tensors]
    numbers = iter(torch.cat([t.to(some[0].device) for t in some]).tolist())
    return [[] if t is None else [next(numbers) for _ in range(len(t))] for t in tensors]
