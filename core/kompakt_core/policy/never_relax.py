"""NeverRelax: the innermost level that can hold the gang at all, however long that takes."""

import math
from dataclasses import replace

from kompakt_core.policy.model import Decision, Offer, Timers, Waiting
from kompakt_core.policy.timers import by_timers

FOR_EVER = Timers(math.inf, math.inf, math.inf)


def never_relax(waiting: Waiting, offer: Offer, now: float) -> Decision:
    """Whatever the timers say, they never run out."""
    return by_timers(replace(waiting, timers=FOR_EVER), offer, now)
