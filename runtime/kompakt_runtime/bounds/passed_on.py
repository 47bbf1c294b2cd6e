"""How much of the error in gradients that a part of compiled code is given arrives at the layers that it gives gradients to.

Compiled code has no autograd nodes whose graph `Flow` could follow. Its parts know by name between which layers they stand.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import Any

import torch

Tensor = Any
Site = Any


@dataclass(frozen=True, eq=False)
class PassedOn:
    """One part. targets: for each gradient that it gives, the layers at whose outputs that is; sources: for each gradient that
    it is given, the layers at whose outputs the gradient was that it is made of, none for one from outside; shares: in a row for
    each that it is given, what part of the squares of those that it gives is made of that one, or of an error as large as it;
    None where that was not measured.
    """

    targets: Sequence[Sequence[Site]]
    sources: Sequence[Sequence[Site]] = ()
    shares: Tensor = None

    def beside(self, other: "PassedOn | None") -> "PassedOn":
        """Of two passes, whichever passes more on."""
        if other is None:
            return self
        alike = self.shares is not None and other.shares is not None and self.shares.shape == other.shares.shape
        return PassedOn(self.targets, self.sources, torch.maximum(self.shares, other.shares) if alike else None)


Shares = list[tuple[Sequence[Site], float]]  # of one gradient: whose it is made of, and how much of its square


def arrived(
    parts: Sequence[PassedOn | None],
    relative: Sequence[Sequence[float]],
    elsewhere: Callable[[Site], Tensor],
) -> dict[Site, Tensor]:
    """For each layer that parts give gradients to, the squared relative error of that gradient by each operation.

    parts: by operation, None where one does not tell; relative: the squared relative errors that each operation brings into the
    gradients that it gives; elsewhere: the errors at a layer as they are taken to be where nothing is known, which is most. One
    read from the device.
    """
    carried = _carried(parts)
    before = {site: {one for shares in every for sources, _ in shares for one in sources} for site, every in carried.items()}
    try:
        order = tuple(TopologicalSorter(before).static_order())
    except CycleError:  # as of layers that run several times
        return {}
    found = {site: elsewhere(site) for site in order}
    told = torch.tensor([part is not None for part in parts])  # the others may bring errors in anywhere
    for site in (one for one in order if one in carried):
        most, own = found[site], _own(site, parts, relative)
        error = own + _largest(_given(shares, found, most) for shares in carried[site])
        found[site] = torch.where(told, torch.minimum(most, error), most)
    return {site: found[site] for site in carried}


def _given(shares: Shares, found: Mapping[Site, Tensor], most: Tensor) -> Tensor:
    """What comes with the gradients that a part is given."""
    coming = ((_largest(found[one] for one in sources) if sources else most, share) for sources, share in shares)
    return torch.stack([error * share for error, share in coming]).sum(0)


def _own(site: Site, parts: Sequence[PassedOn | None], relative: Sequence[Sequence[float]]) -> Tensor:
    """What each operation brings into the gradient at the layer's output itself."""
    own = torch.zeros(len(parts), dtype=torch.float64)
    for row, (part, errors) in enumerate(zip(parts, relative, strict=True)):
        if part is not None:
            mine = (error for sites, error in zip(part.targets, errors, strict=False) if site in sites)
            own[row] = max(mine, default=0.0)
    return own


def _largest(every: Iterable[Tensor]) -> Tensor:
    return torch.stack(list(every)).amax(0)


def _carried(parts: Sequence[PassedOn | None]) -> dict[Site, list[Shares]]:
    """By layer, for each part that gives it a gradient and was measured."""
    known = [part for part in parts if part is not None and part.shares is not None]
    if not known:
        return {}
    device = known[0].shares.device
    flat = torch.cat([part.shares.flatten().to(device) for part in known]).nan_to_num(1.0, math.inf)
    numbers, found = iter(flat.tolist()), defaultdict[Site, list[Shares]](list)
    for part in known:
        rows = [[next(numbers) for _ in part.targets] for _ in part.sources]
        for place, sites in enumerate(part.targets):
            for site in sites:
                found[site].append([(sources, row[place]) for sources, row in zip(part.sources, rows, strict=True)])
    return dict(found)
