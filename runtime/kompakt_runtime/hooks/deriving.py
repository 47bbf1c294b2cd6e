"""Which saved tensors are computed again instead of kept: where that is exact enough, proved, and a gain."""

import math
from functools import partial
from typing import Any, Final, cast

import torch

from kompakt_runtime.bounds.layer import observed
from kompakt_runtime.codec import encode
from kompakt_runtime.compat.tensors import version_of
from kompakt_runtime.figures.counted import Figures
from kompakt_runtime.hooks.channelwise import OPERATIONS, Reach
from kompakt_runtime.hooks.wishes import Asked, Wishes
from kompakt_runtime.saved import states
from kompakt_runtime.saved.account import Account
from kompakt_runtime.saved.compare import rounding
from kompakt_runtime.saved.derived import Derivation, Derived, Source, with_own_parameters
from kompakt_runtime.saved.entry import SavedStorage
from kompakt_runtime.saved.handle import Handle, PlainTensor
from kompakt_runtime.saved.later import defers
from kompakt_runtime.saved.ledger import StorageLedger
from kompakt_runtime.uses.policy import Use

Tensor = Any
Place = tuple[Any, ...]
SAMPLE: Final = 1 << 16  # elements that are packed to learn what a tensor would take
STEADY: Final = 0.999  # of a bound: what rounding of its own factors leaves
GROWTH: Final = 0.8  # the same where the factors are magnitudes, which may be larger in the next step
SHIFT, MEAN = 2, 3  # sources of a norm
# Somebody reads every bit for these reasons; for others the user, or the size, wants the tensor left alone.
EVERY_BIT: Final = frozenset({"ModeLossless", "ValuesNeeded", "NoBound"})


class Deriving:
    """Asked when all readers of a storage are known, so those of its sources mostly are as well."""

    def __init__(self, ledger: StorageLedger, account: Account, figures: Figures) -> None:
        self._ledger, self._account, self._figures = ledger, account, figures
        self._wishes = Wishes()
        self._proved: dict[Place, bool] = {}
        self._bits: dict[Place, tuple[float, float]] = {}  # an element of a result, packed at which bound
        self._looked: dict[Place, int] = {}  # after which optimizer step

    def bound(self, entry: SavedStorage) -> float:
        """The bound to pack with: what the readers ask for, or what those of something else wish that is computed from it."""
        demand = entry.demand
        demand.own = demand.ceiling
        return min(demand.ceiling, self._wishes.bound(demand.askers, self._figures.steps))

    def exactly(self, entry: SavedStorage) -> bool:
        """Every bit again, from what is kept exactly; proved by comparing. Is it so from now on?"""
        derivation = entry.derivation
        if derivation is None or entry.demand.reason not in EVERY_BIT or not derivation.operator.alike:
            return False
        if self._disproved(entry, derivation, exact=True):
            return False
        errors = [_error(one) for one in derivation.sources]
        derivation = with_own_parameters(derivation) if not any(error != 0 for error in errors) else None
        return derivation is not None and self._try(entry, derivation, 0.0, exact=True)

    def proved(self, entry: SavedStorage, derivation: Derivation) -> bool:
        """Every bit again from what is never packed. Is it so from now on?"""
        return not self._disproved(entry, derivation, exact=True) and self._try(entry, derivation, 0.0, exact=True)

    def within(self, entry: SavedStorage, bound: float) -> bool:
        """Every element within the bound. Is it so from now on?"""
        derivation = entry.derivation
        if derivation is None or entry.demand.signs or not _at_hand(entry, derivation):
            return False
        if self._disproved(entry, derivation, exact=False):
            return False
        errors = [_error(one) for one in derivation.sources]
        if any(error is None for error in errors):
            return False
        if derivation.operator.by_channel:
            return self._within_by_channel(entry, derivation, bound)
        bounds = [error or 0.0 for error in errors]
        reach = derivation.operator.reach(partial(_largest, derivation))
        if not all(map(math.isfinite, reach)) or not self._agreed(entry, derivation, reach, bounds, bound):
            return False
        error = sum(by * each for by, each in zip(reach, bounds, strict=True)) + _crossed(bounds) + _rounding(derivation, reach)
        derivation = with_own_parameters(derivation) if error <= bound else None
        return derivation is not None and self._try(entry, derivation, error, exact=False)

    def _within_by_channel(self, entry: SavedStorage, derivation: Derivation, bound: float) -> bool:
        """As `within`, of a batch norm's result."""
        reach, source = Reach.of(derivation, magnitude(entry.alias), self._ledger.looked_at), derivation.sources[0]
        allowed = (bound - reach.apart) * GROWTH
        gain = allowed > 0 and reach.more(source, allowed) <= self._bits_of(entry, bound)
        if isinstance(source, Handle) and source.asked is not None:
            if gain:
                self._wishes.wish(_behind(source.asked), entry.demand.askers, allowed / bound, self._figures.steps)
            else:
                self._wishes.forget(_behind(source.asked), entry.demand.askers[0])
        error = reach.error(source)
        own = with_own_parameters(derivation) if gain and error <= bound else None
        return own is not None and self._try(entry, own, error, exact=False)

    def behind(self, norm: Asked) -> float:
        """The largest error that what is computed from its result wishes behind a batch norm, which reads this source."""
        return self._wishes.bound([_behind(norm)], self._figures.steps)

    def _try(self, entry: SavedStorage, derivation: Derivation, error: float, exact: bool) -> bool:
        key, original, found = _place(entry, derivation, exact), entry.alias, None
        away = any(map(_away, derivation.sources))
        if away and not derivation.sure:
            return False
        if not away and (self._due(key) or not derivation.sure):
            found = derivation.run(self._ledger.looked_at)
            self._proved[key] = _holds(found, original, error, 0 if exact else derivation.roundings)
        if not self._proved.get(key):
            self._forget(entry, derivation)
            return False
        self._replace(entry, derivation, error, exact)
        if found is not None:
            self._account.compare(entry, [(0, found)], original)
        return True

    def _forget(self, entry: SavedStorage, derivation: Derivation) -> None:
        """Sources need not be any better for the sake of what is kept all the same."""
        for source in derivation.sources:
            if isinstance(source, Handle) and source.asked is not None and entry.demand.askers:
                for asked in (source.asked, _behind(source.asked)):
                    self._wishes.forget(asked, entry.demand.askers[0])

    def _due(self, place: Place) -> bool:
        """The first time, and once in each measured step."""
        steps = self._figures.steps
        due = place not in self._looked or (observed(steps) and self._looked[place] != steps)
        if due:
            self._looked[place] = steps
        return due

    def _disproved(self, entry: SavedStorage, derivation: Derivation, exact: bool) -> bool:
        """It came out different once, and nobody looks again."""
        differs = self._proved.get(_place(entry, derivation, exact)) is False
        if differs:
            self._figures.count_raw("DerivedDiffers")
        return differs

    def _replace(self, entry: SavedStorage, derivation: Derivation, error: float, exact: bool) -> None:
        by = entry.demand.asked_by
        entry.layer = by.name if by is not None else entry.layer
        entry.become(states.DerivedState(Derived(derivation, self._ledger.source), error, exact))
        for source in derivation.sources:
            if isinstance(source, Handle):  # packed again for whichever reader, it must not become worse
                source.entry.gives(entry)
                source.entry.demand.ceiling = min(source.entry.demand.ceiling, source.entry.bound or math.inf)

    def again(self, derived: Derived) -> Tensor | None:
        """As a backward pass will have it; None while that would fetch something from host memory."""
        return None if any(map(_away, derived.handles)) else derived.decode(self._ledger.looked_at)

    def _agreed(
        self, entry: SavedStorage, derivation: Derivation, reach: tuple[float, ...], bounds: list[float], bound: float
    ) -> bool:
        """Whether it is a gain, and if so the sources hear which bounds it takes."""
        lossy = [i for i, each in enumerate(bounds) if each > 0]
        result, step = entry.demand.askers[0], self._figures.steps
        sources = [derivation.sources[i] for i in lossy]
        margin = STEADY if derivation.operator.steady else GROWTH
        own = [self._without(source, result) for source in sources]
        needed = _shared(bound * margin, [reach[i] for i in lossy], own)
        more = sum(
            source.entry.nbytes / source.dtype.itemsize * math.log2(max(1.0, mine / wanted))
            for source, mine, wanted in zip(sources, own, needed, strict=True)
        )
        gain = more <= self._bits_of(entry, bound)
        for source, wanted in zip(sources, needed, strict=True):
            if source.asked is not None:
                if gain:
                    self._wishes.wish(source.asked, entry.demand.askers, wanted / bound, step)
                else:
                    self._wishes.forget(source.asked, result)
        return bool(gain)

    def _without(self, source: Handle, result: Asked) -> float:
        """The bound that the source would have if this result were kept."""
        demand = source.entry.demand
        other = self._wishes.bound(demand.askers, self._figures.steps, without=result)
        return min(demand.own if math.isfinite(demand.own) else source.entry.bound, other)

    def _bits_of(self, entry: SavedStorage, bound: float) -> float:
        """What the result takes when it is packed: from a part of it, now and then."""
        key, original = (_name(entry), entry.nbytes), cast(Tensor, entry.alias)
        if self._due(key) or key not in self._bits:
            part = original[:SAMPLE]
            self._bits[key] = 8 * encode(part, bound).nbytes / part.numel(), bound
        bits, at = self._bits[key]
        return float(original.numel() * max(0.0, bits + math.log2(at / bound)))


def _behind(source: Asked) -> Asked:
    """Who asks for bounds of a norm's result, where errors count behind the norm."""
    return source[0], f"{source[1]}, behind"


def _holds(found: Tensor, original: Tensor, error: float, roundings: int) -> bool:
    """Compared with the original; roundings: none where every bit counts."""
    if not roundings:
        return bool(torch.equal(found.view(torch.uint8), original.view(torch.uint8)))
    away = (found - original).abs_()
    if away.amax() <= error:
        return True
    away.masked_fill_(~original.isfinite(), 0)
    return bool((away <= rounding(original, roundings).add_(error * (1 + 1e-6))).all())


def _place(entry: SavedStorage, derivation: Derivation, exact: bool) -> Place:
    threads = torch.get_num_threads()  # each takes a part of a tensor, and parts may be computed by other instructions
    return _name(entry), exact, derivation.shape, derivation.strides, derivation.dtype, entry.probe.device, threads


def _name(entry: SavedStorage) -> tuple[str, str]:
    askers = entry.demand.askers
    return (askers[0][0].name, askers[0][1]) if askers else (entry.layer, "")


def _error(source: Source) -> float | None:
    """How far its elements may be off when it is read; None where that is not known yet, or it does not give values."""
    if isinstance(source, PlainTensor):
        return 0.0 if version_of(source.tensor) == source.version else None
    entry = source.entry
    if entry.demand.unresolved or source.use is Use.SHAPE or version_of(entry.probe) != source.version:
        return None
    if entry.taken:
        return float(entry.bound)
    return 0.0 if entry.same or (entry.plain and entry.demand.whole) else None


def _away(source: Source) -> bool:
    """In host memory, from where nobody fetches it to compare."""
    state = source.entry.state if isinstance(source, Handle) else None
    if isinstance(state, states.DerivedState):
        return any(map(_away, state.copy.handles))
    return isinstance(state, states.HostedState | states.PackedHostedState)


def _at_hand(entry: SavedStorage, derivation: Derivation) -> bool:
    """Nobody waits for a device to learn how far errors reach."""
    return derivation.operator.steady or not defers(entry.alias)


def _largest(derivation: Derivation, number: int) -> float:
    source = derivation.sources[number]
    if isinstance(source, PlainTensor):
        return magnitude(source.tensor)
    entry, demand = source.entry, source.entry.demand
    if demand.largest is None:
        demand.largest = magnitude(entry.alias) if entry.alias is not None else math.inf
    return float(demand.largest)


def magnitude(t: Tensor) -> float:
    """The largest there is; NaN where one is in it."""
    least, most = torch.aminmax(t)  # a twentieth of the time that the norm takes on CPUs
    return float(torch.maximum(most, -least))


def _crossed(bounds: list[float]) -> float:
    """In a product both factors are off."""
    return math.prod(bounds) if len(bounds) == 2 else 0.0


def _rounding(derivation: Derivation, reach: tuple[float, ...]) -> float:
    """What another formula leaves, which computes in float32 at least, and what rounded statistics do that is no share of the
    result: a mean that is off moves all of it, and a scale that is off the part without the shift.
    """
    if derivation.operator.alike:
        return 0.0
    eps = torch.finfo(torch.promote_types(derivation.dtype, torch.float32)).eps
    left = OPERATIONS * eps * reach[0] * _largest(derivation, 0)
    if narrow := derivation.narrow:
        left += narrow * (reach[0] * _largest(derivation, MEAN) + _largest(derivation, SHIFT))
    return float(left)


def _shared(bound: float, reach: list[float], own: list[float]) -> list[float]:
    """The widest bounds of sources whose errors add up to `bound`: who needs less than an equal part leaves the rest."""
    left, count = bound, len(own)
    needed = [0.0] * count
    for i in sorted(range(count), key=lambda i: reach[i] * own[i]):
        part = min(left / count, reach[i] * own[i])
        needed[i] = part / reach[i] if reach[i] > 0 else own[i]
        left, count = left - part, count - 1
    return needed
