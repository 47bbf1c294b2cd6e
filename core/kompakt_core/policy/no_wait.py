"""NoWait: the best level there is now."""

from dataclasses import replace

from kompakt_core.policy.model import NO_WAITING, Decision, Offer, Waiting
from kompakt_core.policy.timers import by_timers


def no_wait(waiting: Waiting, offer: Offer, now: float) -> Decision:
    """Whatever the timers say, they have run out."""
    return by_timers(replace(waiting, timers=NO_WAITING, since=now), offer, now)
