"""Only the process beside the Lease's holder decides, and only while the Lease is renewed."""

import pytest

from kompakt_client.elector import DURATION
from kompakt_client.lease import MARGIN_SECONDS, LeaseObserver, LeaseSpec


def lease(holder: str | None, renewed: str, seconds: int | None = 15) -> LeaseSpec:
    return LeaseSpec(holder_identity=holder, lease_duration_seconds=seconds, renew_time=renewed)


def test_the_holder_of_our_hostname_is_us() -> None:
    seen = LeaseObserver().observe(lease("pod-a_8f1c", "1"), 100.0)
    assert seen.active("pod-a", 100.0)
    assert not seen.active("pod-b", 100.0)


def test_a_hostname_that_only_begins_like_ours_is_another() -> None:
    seen = LeaseObserver().observe(lease("pod-a-2_8f1c", "1"), 100.0)
    assert not seen.active("pod-a", 100.0)


@pytest.mark.parametrize("holder", [None, ""])
def test_nobody_holds_a_released_lease(holder: str | None) -> None:
    seen = LeaseObserver().observe(lease("pod-a_1", "1"), 100.0).observe(lease(holder, "2"), 101.0)
    assert not seen.active("pod-a", 101.0)
    assert "nobody" in seen.why_not("pod-a", 101.0)


def test_a_lease_not_renewed_ends_our_time_before_anybody_may_take_it_over() -> None:
    seen = LeaseObserver().observe(lease("pod-a_1", "1"), 100.0)
    assert seen.active("pod-a", 115.0 - MARGIN_SECONDS - 0.1)
    assert not seen.active("pod-a", 115.0 - MARGIN_SECONDS)
    assert "renewed" in seen.why_not("pod-a", 115.0)


def test_only_a_renewal_counts_as_one_not_the_same_lease_seen_again() -> None:
    seen = LeaseObserver().observe(lease("pod-a_1", "1"), 100.0).observe(lease("pod-a_1", "1"), 110.0)
    assert not seen.active("pod-a", 111.0)
    assert seen.observe(lease("pod-a_1", "2"), 111.0).active("pod-a", 112.0)


def test_a_short_lease_leaves_half_of_it() -> None:
    seen = LeaseObserver().observe(lease("pod-a_1", "1", 4), 100.0)
    assert seen.active("pod-a", 101.9)
    assert not seen.active("pod-a", 102.0)


def test_a_deleted_lease_is_nobodys() -> None:
    seen = LeaseObserver().observe(lease("pod-a_1", "1"), 100.0).observe(None, 101.0)
    assert not seen.active("pod-a", 101.0)


def test_a_lease_given_up_early_leaves_time_for_the_last_writes_of_its_holder() -> None:
    seen = LeaseObserver().observe(lease("pod-b_1", "1"), 100.0).observe(lease("", "2", 1), 101.0)
    seen = seen.observe(lease("pod-a_1", "3"), 101.1)
    assert not seen.active("pod-a", 101.2)
    assert "changed hands" in seen.why_not("pod-a", 101.2)
    seen = seen.observe(lease("pod-a_1", "4"), 101.0 + MARGIN_SECONDS)
    assert seen.active("pod-a", 101.2 + MARGIN_SECONDS)


def test_a_lease_that_ran_out_is_taken_over_at_once() -> None:
    seen = LeaseObserver().observe(lease("pod-b_1", "1"), 100.0).observe(lease("pod-a_1", "2"), 115.1)
    assert seen.active("pod-a", 115.2)


def test_the_first_lease_ever_is_active_at_once() -> None:
    assert LeaseObserver().observe(None, 100.0).observe(lease("pod-a_1", "1"), 101.0).active("pod-a", 101.0)


@pytest.mark.parametrize(
    ("holder", "after", "free"),
    [("", 0.0, True), ("me", 0.0, True), ("other", 0.0, False), ("other", DURATION - 1, False), ("other", DURATION, True)],
)
def test_a_lease_is_free_when_unheld_own_or_unchanged_for_its_duration(holder: str, after: float, free: bool) -> None:
    seen = LeaseObserver().observe(lease(holder, "t1"), 100.0)
    assert seen.observe(lease(holder, "t1"), 100.0 + after).free_for("me", 100.0 + after, DURATION) is free


def test_a_renewed_lease_counts_from_its_renewal_on_our_own_clock() -> None:
    seen = LeaseObserver().observe(lease("other", "t1"), 0.0).observe(lease("other", "t2"), 14.0)
    assert not seen.free_for("me", 20.0, DURATION)
