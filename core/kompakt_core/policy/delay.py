"""The delay policies, one row each: take a place worse than the best one now, or wait.

By timers (Dally, arXiv 2401.16492): insist on one machine, on one rack, on one block for so long each, then take anything.
Our own: wait for a better level only as long as that level can still pay the waiting back. A job that computes for another
r seconds loses r * (slowdown here - slowdown there) by the worse level. Waiting longer than that can never pay, so that is how
long it waits, no longer. What a job does not declare is taken to be as long again as it has run: the expectation under
heavy-tailed durations, and the rule behind serving the least attained service first.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from kompakt_core.placement.model import Level
from kompakt_core.policy.levels import Levels
from kompakt_core.policy.model import (
    NO_WAITING,
    DelayDecision,
    DelayPolicy,
    LevelOffer,
    PlaceAt,
    Reserve,
    Timers,
    WaitingGang,
    WaitUntil,
)

FOR_EVER = Timers(math.inf, math.inf, math.inf)
FIRST_GUESS_S = 3600.0  # what a job that has not run yet is taken to need: a first lease of an hour in the work compared with


def dally(waiting: WaitingGang, offer: LevelOffer, now: float) -> DelayDecision:
    """One machine: at once. A worse level: when the timer of the level within has run out, or nothing within could hold it.

    Who would else wait without end and was passed over often enough gets what would serve it reserved; that is not Dally's.
    """
    levels, need = offer.levels, waiting.gpus
    ideal = levels.ideal(need)
    if offer.level is None:
        return Reserve(ideal) if waiting.passed_over else WaitUntil(None, ideal)
    opens = acceptable_from(waiting, levels, offer.level)
    if now >= opens:
        return PlaceAt(offer.level)
    if not math.isinf(opens):
        return WaitUntil(opens, levels.within(offer.level))
    return Reserve(ideal) if waiting.passed_over else WaitUntil(None, levels.within(offer.level))


def acceptable_from(waiting: WaitingGang, levels: Levels, level: Level) -> float:
    """The moment from which this level is good enough, on the clock of `since`; the comparison with it is >=."""
    if not levels.worse_than(level, levels.ideal(waiting.gpus)):
        return -math.inf
    return waiting.since + waiting.timers.of(levels.within(level))


def never_relax(waiting: WaitingGang, offer: LevelOffer, now: float) -> DelayDecision:
    """The innermost level that can hold the gang at all, however long that takes: timers that never run out."""
    return dally(replace(waiting, timers=FOR_EVER), offer, now)


def no_wait(waiting: WaitingGang, offer: LevelOffer, now: float) -> DelayDecision:
    """The best level there is now: timers that have run out."""
    return dally(replace(waiting, timers=NO_WAITING, since=now), offer, now)


def kompakt(waiting: WaitingGang, offer: LevelOffer, now: float) -> DelayDecision:
    """Place at the ideal level at once; at a worse one when waiting has cost what it could gain; else say until when."""
    levels = offer.levels
    ideal = levels.ideal(waiting.gpus)
    if offer.level is not None:
        opens = pays_until(waiting, levels, offer.level)
        if now >= opens:
            return PlaceAt(offer.level)
    if offer.level is None and waiting.passed_over:
        return Reserve(ideal)
    return WaitUntil(None if offer.level is None else opens, ideal)


def pays_until(waiting: WaitingGang, levels: Levels, level: Level) -> float:
    """Until when waiting for the ideal level can still pay, given that `level` could be had now."""
    ideal = levels.ideal(waiting.gpus)
    if not levels.worse_than(level, ideal):
        return -math.inf
    return waiting.since + predicted_work(waiting) * max(0.0, gain(waiting, ideal, level))


def gain(waiting: WaitingGang, better: Level, worse: Level) -> float:
    """Seconds saved by the better level for each second of computing."""
    return waiting.slowdown.get(worse, 0.0) - waiting.slowdown.get(better, 0.0)


def predicted_work(waiting: WaitingGang) -> float:
    """Seconds of computing still to come: as declared, else as much again as was done, at least the first guess."""
    if waiting.remaining_s is not None:
        return waiting.remaining_s
    return max(FIRST_GUESS_S, waiting.attained_s)


DELAY_POLICIES: Final[Mapping[str, DelayPolicy]] = MappingProxyType(
    {"dally": dally, "no-wait": no_wait, "never-relax": never_relax, "kompakt": kompakt}
)
