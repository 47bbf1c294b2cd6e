"""Our own: wait for a better level only as long as that level can still pay the waiting back.

A job that computes for another r seconds loses r * (slowdown here - slowdown there) by the worse level. Waiting longer than
that can never pay, so that is how long it waits, no longer. What a job does not declare is taken to be as long again as it
has run: the expectation under heavy-tailed durations, and the rule behind serving the least attained service first.
"""

import math

from kompakt_core.placement.model import Level
from kompakt_core.policy.levels import Levels
from kompakt_core.policy.model import Decision, Offer, Place, Reserve, Waiting, WaitUntil

FIRST_GUESS_S = 3600.0  # what a job that has not run yet is taken to need: a first lease of an hour in the work compared with


def kompakt(waiting: Waiting, offer: Offer, now: float) -> Decision:
    """Place at the ideal level at once; at a worse one when waiting has cost what it could gain; else say until when."""
    levels = offer.levels
    ideal = levels.ideal(waiting.gpus)
    if offer.level is not None:
        opens = pays_until(waiting, levels, offer.level)
        if now >= opens:
            return Place(offer.level)
    if offer.level is None and waiting.passed_over:
        return Reserve(ideal)
    return WaitUntil(None if offer.level is None else opens, ideal)


def pays_until(waiting: Waiting, levels: Levels, level: Level) -> float:
    """Until when waiting for the ideal level can still pay, given that `level` could be had now."""
    ideal = levels.ideal(waiting.gpus)
    if not levels.worse_than(level, ideal):
        return -math.inf
    return waiting.since + predicted_work(waiting) * max(0.0, gain(waiting, ideal, level))


def gain(waiting: Waiting, better: Level, worse: Level) -> float:
    """Seconds saved by the better level for each second of computing."""
    return waiting.slowdown.get(worse, 0.0) - waiting.slowdown.get(better, 0.0)


def predicted_work(waiting: Waiting) -> float:
    """Seconds of computing still to come: as declared, else as much again as was done, at least the first guess."""
    if waiting.remaining_s is not None:
        return waiting.remaining_s
    return max(FIRST_GUESS_S, waiting.attained_s)
