"""Dally: insist on one machine for R leases, on one rack for N leases, then take anything. The caller sets the timers."""

from kompakt_core.policy.model import Decision, Offer, Timers, Waiting
from kompakt_core.policy.timers import by_timers


def dally(waiting: Waiting, offer: Offer, now: float) -> Decision:
    """As the timers in `waiting` say."""
    return by_timers(waiting, offer, now)


def timers_in_leases(r: float, n: float, lease_s: float) -> Timers:
    """Dally's two timers, counted in leases, in seconds. A block counts as a rack's outside: N opens both."""
    return Timers(r * lease_s, n * lease_s, n * lease_s)
