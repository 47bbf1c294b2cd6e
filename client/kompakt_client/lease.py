"""What is seen of a Lease, and who may decide by it. Pure: readings and a clock in, answers out.

The rule against clock skew is that of client-go's leader election: a Lease counts as expired when its record has not changed for
its duration on the *observer's* clock; written times are for people.
"""

from dataclasses import dataclass

import msgspec

# A write must be answered well before another one could take the Lease over.
WRITE_SECONDS = 4.0
CONNECT_SECONDS = 3.0
# kube-scheduler gives up after renewDeadline (10 s of the 15 s a Lease lasts); whoever takes over waits for the whole Lease.
# Who decides beside it stops so early that a write begun at the last moment is over before the Lease runs out.
MARGIN_SECONDS = CONNECT_SECONDS + WRITE_SECONDS
DEFAULT_DURATION_SECONDS = 15


class LeaseSpec(msgspec.Struct, rename="camel"):
    """Of coordination.k8s.io/v1."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


@dataclass(frozen=True, slots=True)
class LeaseObserver:
    """What was last seen of the Lease. `seen_at`: our own monotonic clock at the last renewal seen, so clocks need not agree."""

    holder: str = ""
    renewed: str = ""
    duration: int = DEFAULT_DURATION_SECONDS
    seen_at: float = 0.0
    quiet_until: float = 0.0  # writes of a holder that gave the Lease up early may be under way until then
    transitions: int = 0  # client-go counts one whenever the holder becomes another one; giving the Lease up is none

    def observe(self, spec: LeaseSpec | None, now: float) -> "LeaseObserver":
        """The next state after seeing the Lease's spec (None: there is none); only a renewal moves `seen_at`."""
        if spec is None:
            return LeaseObserver(seen_at=now, quiet_until=self._quiet("", now))
        holder, renewed = spec.holder_identity or "", spec.renew_time or ""
        same = holder == self.holder and renewed == self.renewed
        duration = spec.lease_duration_seconds or DEFAULT_DURATION_SECONDS
        seen_at, quiet = self.seen_at if same else now, self._quiet(holder, now)
        return LeaseObserver(holder, renewed, duration, seen_at, quiet, spec.lease_transitions or 0)

    def _quiet(self, holder: str, now: float) -> float:
        """A holder that ends in order gives its Lease up at once, with perhaps a write still on its way: leave it time."""
        gave_up = self.holder and holder != self.holder and now - self.seen_at < self.duration
        return now + MARGIN_SECONDS if gave_up else self.quiet_until

    def free_for(self, identity: str, now: float, duration: float) -> bool:
        """Whether `identity` may take or keep the Lease."""
        return self.holder in ("", identity) or now >= self.seen_at + duration

    def active(self, identity: str, now: float) -> bool:
        """May who runs beside the holder `<identity>_<uuid>` decide at this moment?"""
        mine = self.holder.startswith(f"{identity}_")
        return mine and now >= self.quiet_until and now - self.seen_at < self.patience

    def only(self, identity: str, since: "LeaseObserver") -> bool:
        """Whether nobody but who runs beside `<identity>_<uuid>` can have held the Lease since that was seen.

        Readings in between may have been missed: a holder that nobody saw has left a transition (LeaseTransitions of client-go's
        leaderelection). A Lease that is gone or made anew begins at 0, and counts as somebody else's.
        """
        ours = not self.holder or self.holder.startswith(f"{identity}_")
        return ours and self.transitions - since.transitions == (self.holder not in ("", since.holder))

    @property
    def patience(self) -> float:
        """Seconds without a renewal after which we stop deciding; half of a Lease that is too short for the margin."""
        return max(self.duration - MARGIN_SECONDS, self.duration / 2)

    def why_not(self, identity: str, now: float) -> str:
        """In stable words, why `identity` may not decide now."""
        if not self.holder:
            return "nobody holds the scheduler's Lease"
        if not self.holder.startswith(f"{identity}_"):
            return f"the scheduler's Lease is held by {self.holder}, not by {identity}"
        if now < self.quiet_until:
            return "the scheduler's Lease changed hands a moment ago; writes of its last holder may be under way"
        return "the scheduler's Lease is not being renewed"
