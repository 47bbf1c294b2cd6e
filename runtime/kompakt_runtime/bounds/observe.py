"""After an optimizer step: reads what the measured layers saw, all at once, and renews their bounds."""

import math
from typing import Any

import torch

from kompakt_runtime.bounds.allotment import overs
from kompakt_runtime.bounds.ends import End
from kompakt_runtime.bounds.layer import (
    LayerObservation,
    aimed_at,
    best_bound,
    error_bound,
    nonlinear_bound,
    sigma_ratio,
    tolerance,
)
from kompakt_runtime.bounds.nonlinear import Operation, Operations
from kompakt_runtime.bounds.site import Site
from kompakt_runtime.bounds.sites import Sites
from kompakt_runtime.bounds.sums import mean_magnitude
from kompakt_runtime.bounds.targets import error_of_a_step, mean_momentum

Tensor = Any


def after_step(sites: Sites, optimizer: Any, target: float) -> list[Site] | None:
    """Counts the step at every site of this optimizer; returns the sites whose bound is new, None where it steps no site at all.
    One read from the device.
    """
    mine = sites.of_weights(_weights(optimizer))
    _tell_others(sites, mine)
    if not mine:
        return None
    for _, site in mine:
        site.stepped()
    measured = [(site, figures) for weight, site in mine if (figures := _figures(site, optimizer, weight)) is not None]
    renewed = _renew(measured, target)
    _sample(renewed)
    done = {id(site) for site, _ in measured}
    for _, site in mine:
        if id(site) not in done:
            _skip(site)
    return renewed


def _tell_others(sites: Sites, mine: list[tuple[Any, Site]]) -> None:
    known = {id(site) for _, site in mine}
    for site in sites:
        if id(site) not in known and site.observing and not site.idle:
            site.patience.other()


def settle_alone(sites: Sites, target: float) -> list[Site]:
    """Ends the measuring of layers that were waited for in vain: nobody we know steps their weights, so their gradients serve.
    Returns the sites whose bound is new. One read from the device.
    """
    overdue = [site for site in sites if site.overdue]
    for site in overdue:
        site.stepped(alone=True)
    measured = [(site, figures) for site in overdue if (figures := site.figures()) is not None]
    renewed = _renew(measured, target)
    for site in overdue:
        if site.patience.over:
            site.finish(again=False)
    return renewed


def _weights(optimizer: Any) -> list[Any]:
    return [weight for group in optimizer.param_groups for weight in group["params"]]


def _figures(site: Site, optimizer: Any, weight: Any) -> Tensor | None:
    if not site.observing or weight.grad is None or weight.grad.layout != torch.strided:
        return None
    gradient = mean_magnitude(weight.grad)
    return site.figures(_error_of_a_step(site, optimizer, weight), gradient)


def _error_of_a_step(site: Site, optimizer: Any, weight: Any) -> Tensor | None:
    """As `targets` has it; None where a state of its own kind knows none of the operations that this takes."""
    try:
        found = error_of_a_step(optimizer, weight, site.spread)
        site.harm = found.harm
        return found.size
    except Exception:
        site.without_momentum()
        return None


def _renew(measured: list[tuple[Site, Tensor]], target: float) -> list[Site]:
    if not measured:
        return []
    first = measured[0][1]
    rows = torch.stack([figures.to(first.device) for _, figures in measured]).tolist()
    renewed = []
    for (site, _), row in zip(measured, rows, strict=True):
        seen = LayerObservation(*row)
        if site.bound is not None:
            site.judge(sigma_ratio(seen, site.bound * site.spreading))
        elif site.unmeasured:
            site.aimed_at = aimed_at(seen, target, site.unmeasured)
        average = site.average.after(best_bound(seen, target), site.steps)
        bound = error_bound(average, seen)
        site.tolerance = tolerance(average, seen.size) or site.tolerance
        site.renew(bound)
        if bound is not None:
            renewed.append(site)
    return renewed


def renew_operations(
    operations: Operations, sites: Sites, optimizer: Any, target: float, renewed: list[Site] | None
) -> list[tuple[Operation, float]]:
    """New bounds for nonlinear operations' inputs, after an optimizer's step. One read from the device.

    renewed: as from `after_step`. An operation is judged when linear layers have had a measured step and its own weight was
    stepped, by whichever optimizers, in whichever order. Returns each with the error that its bound so far allowed, over the one
    that is allowed.
    """
    _hear(operations, sites, optimizer, renewed, operations.ends.stepped(optimizer, target) if renewed is None else [])
    measured = [(operation, figures) for operation in operations if (figures := operation.figures()) is not None]
    if not measured:
        return []
    first = measured[0][1]
    rows = torch.stack([figures.to(first.device) for _, figures in measured]).tolist()
    judged = []
    for (operation, _), (own, widest, size) in zip(measured, rows, strict=True):
        moved = max(operation.over, own / target) if operation.over is not None and size else math.nan
        bound = nonlinear_bound(operation.used, moved, widest)
        if bound is not None:
            operation.bound = bound
            judged.append((operation, moved))
        operation.finish()
    return judged


def _hear(operations: Operations, sites: Sites, optimizer: Any, renewed: list[Site] | None, ends: list[End]) -> None:
    """Tells operations what this step means for them. ends: as from `Ends.stepped`."""
    mine = set(map(id, _weights(optimizer)))
    for operation in operations:
        for own in operation.weights if operation.seen else ():
            weight = own.stepped_weight()
            if id(weight) in mine:
                own.stepped(optimizer, _ratio(optimizer, weight))
    if renewed or ends:
        seen = [operation for operation in operations if operation.seen]
        for operation, over in zip(seen, overs(seen, list(sites) or ends, operations.flow), strict=True):
            operation.allow(over)
    elif renewed is not None:
        # No measured step, or an overflow, say: what was seen tells nothing.
        operations.forget()
        operations.flow.clear()


def _ratio(optimizer: Any, weight: Any) -> Any:
    """Mean |momentum| over mean |gradient| of a weight; 1 where it has none of both here."""
    if weight is None or weight.grad is None or weight.grad.layout != torch.strided:
        return 1.0
    try:
        return (mean_momentum(optimizer, weight) / mean_magnitude(weight.grad)).double()
    except Exception:  # as above
        return 1.0


def _sample(renewed: list[Site]) -> None:
    """Each measured step another layer's sigma is measured, the same on every rank: one that had the fewest turns."""
    chosen = min(renewed, key=lambda site: site.turns, default=None)
    for site in renewed:
        site.sampled = site is chosen
        site.turns += site.sampled


def _skip(site: Site) -> None:
    """No figures: a measured step that lacked a pass is measured again, any other step only counts."""
    site.finish(again=site.observing)
