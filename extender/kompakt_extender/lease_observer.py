"""Whether this process may decide: only while kube-scheduler beside it holds the Lease.

There is one decider in the cluster, without a second election: kube-scheduler elects itself with a Lease whose holderIdentity is
`<hostname>_<uuid>`. Our process runs in the same pod, so its hostname tells whether the scheduler that calls it is the leader.
"""

from dataclasses import dataclass

from kompakt_extender.objects import Lease

# A write must be answered well before another scheduler could take the Lease over.
WRITE_SECONDS = 4.0
CONNECT_SECONDS = 3.0
# kube-scheduler gives up after renewDeadline (10 s of the 15 s a Lease lasts); whoever takes over waits for the whole Lease.
# We stop deciding so early that a write we began at the last moment is over before the Lease runs out.
MARGIN_SECONDS = CONNECT_SECONDS + WRITE_SECONDS
DEFAULT_DURATION_SECONDS = 15


@dataclass(frozen=True, slots=True)
class LeaseObserver:
    """What was last seen of the Lease. `seen_at`: our own monotonic clock at the last renewal seen, so clocks need not agree."""

    holder: str = ""
    renewed: str = ""
    duration: int = DEFAULT_DURATION_SECONDS
    seen_at: float = 0.0
    quiet_until: float = 0.0  # writes of a holder that gave the Lease up early may be under way until then

    def observe(self, lease: Lease | None, now: float) -> "LeaseObserver":
        """The next state after seeing the Lease (None: there is none); only a renewal moves `seen_at`."""
        if lease is None:
            return LeaseObserver(seen_at=now, quiet_until=self._quiet("", now))
        spec = lease.spec
        holder, renewed = spec.holder_identity or "", spec.renew_time or ""
        same = holder == self.holder and renewed == self.renewed
        duration = spec.lease_duration_seconds or DEFAULT_DURATION_SECONDS
        return LeaseObserver(holder, renewed, duration, self.seen_at if same else now, self._quiet(holder, now))

    def _quiet(self, holder: str, now: float) -> float:
        """A holder that ends in order gives its Lease up at once, with perhaps a write still on its way: leave it time."""
        gave_up = self.holder and holder != self.holder and now - self.seen_at < self.duration
        return now + MARGIN_SECONDS if gave_up else self.quiet_until

    def active(self, identity: str, now: float) -> bool:
        """May `identity` decide at this moment?"""
        mine = self.holder.startswith(f"{identity}_")
        return mine and now >= self.quiet_until and now - self.seen_at < self.patience

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
