"""Only the process beside the Lease's holder decides, and only while the Lease is renewed."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kompakt_client.elector import DURATION
from kompakt_client.lease import MARGIN_SECONDS, LeaseObserver, LeaseSpec


def lease(holder: str | None, renewed: str, seconds: int | None = 15) -> LeaseSpec:
    return LeaseSpec(holder_identity=holder, lease_duration_seconds=seconds, renew_time=renewed)


OURS = lease("pod-a_1", "1")
GIVEN_UP = [(100.0, lease("pod-b_1", "1")), (101.0, lease("", "2", 1))]


@pytest.mark.parametrize(
    ("seen", "at", "why_not"),
    [
        ([(100.0, lease("pod-a_8f1c", "1"))], 100.0, None),
        ([(100.0, lease("pod-b_8f1c", "1"))], 100.0, ""),
        ([(100.0, lease("pod-a-2_8f1c", "1"))], 100.0, ""),
        ([(100.0, OURS), (101.0, lease(None, "2"))], 101.0, "nobody"),
        ([(100.0, OURS), (101.0, lease("", "2"))], 101.0, "nobody"),
        ([(100.0, OURS), (101.0, None)], 101.0, ""),
        ([(100.0, OURS)], 115.0 - MARGIN_SECONDS - 0.1, None),
        ([(100.0, OURS)], 115.0 - MARGIN_SECONDS, "renewed"),
        ([(100.0, OURS), (110.0, OURS)], 111.0, "renewed"),
        ([(100.0, OURS), (110.0, OURS), (111.0, lease("pod-a_1", "2"))], 112.0, None),
        ([(100.0, lease("pod-a_1", "1", 4))], 101.9, None),
        ([(100.0, lease("pod-a_1", "1", 4))], 102.0, "renewed"),
        ([*GIVEN_UP, (101.1, lease("pod-a_1", "3"))], 101.2, "changed hands"),
        (
            [*GIVEN_UP, (101.1, lease("pod-a_1", "3")), (101.0 + MARGIN_SECONDS, lease("pod-a_1", "4"))],
            101.2 + MARGIN_SECONDS,
            None,
        ),
        ([(100.0, lease("pod-b_1", "1")), (115.1, lease("pod-a_1", "2"))], 115.2, None),
        ([(100.0, None), (101.0, OURS)], 101.0, None),
    ],
    ids=[
        "the holder of our hostname is us",
        "another holder is not",
        "a hostname that only begins like ours is another",
        "a lease without a holder is nobody's",
        "a released lease is nobody's",
        "a deleted lease is nobody's",
        "a lease not renewed is ours until a margin before its end",
        "and not until anybody may take it over",
        "the same lease seen again is no renewal",
        "a renewal is one",
        "a short lease leaves half of it",
        "and not more",
        "a lease given up early leaves time for the last writes of its holder",
        "and no more than that",
        "a lease that ran out is taken over at once",
        "the first lease ever is active at once",
    ],
)
def test_who_may_decide(seen: list[tuple[float, LeaseSpec | None]], at: float, why_not: str | None) -> None:
    observer = LeaseObserver()
    for now, found in seen:
        observer = observer.observe(found, now)
    assert observer.active("pod-a", at) is (why_not is None)
    assert (why_not or "") in observer.why_not("pod-a", at)


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


HOLDERS = st.lists(st.sampled_from(["", "pod-a_1", "pod-a_2", "pod-b_1"]), min_size=1, max_size=12)


@settings(max_examples=500)
@given(holders=HOLDERS, seen=st.lists(st.booleans(), min_size=12, max_size=12))
def test_only_those_beside_us_held_a_lease_if_so_it_seems(holders: list[str], seen: list[bool]) -> None:
    """Whatever was missed: transitions are counted as client-go does."""
    since = LeaseObserver().observe(LeaseSpec("pod-a_1"), 0.0)
    holder, transitions, ours = "pod-a_1", 0, True
    for at, (one, shown) in enumerate(zip(holders, seen, strict=False), 1):
        transitions += one not in ("", holder)
        holder, ours = one, ours and not one.startswith("pod-b_")
        if shown:
            now = since.observe(LeaseSpec(holder, lease_transitions=transitions), float(at))
            if not now.only("pod-a", since):
                return
            assert ours, f"{holders[:at]}"
            since = now


@pytest.mark.parametrize(
    ("then", "now", "only"),
    [
        (LeaseSpec("pod-a_1", lease_transitions=4), LeaseSpec("pod-a_1", lease_transitions=4), True),
        (LeaseSpec("pod-a_1", lease_transitions=4), LeaseSpec("", lease_transitions=4), True),
        (LeaseSpec("pod-a_1", lease_transitions=4), LeaseSpec("pod-a_2", lease_transitions=5), True),
        (LeaseSpec("", lease_transitions=4), LeaseSpec("pod-a_2", lease_transitions=5), True),
        (LeaseSpec("pod-a_1", lease_transitions=4), LeaseSpec("pod-b_1", lease_transitions=5), False),
        (LeaseSpec("pod-a_1", lease_transitions=4), LeaseSpec("pod-a_2", lease_transitions=6), False),
        (LeaseSpec("pod-a_1", lease_transitions=4), LeaseSpec("pod-a_2", lease_transitions=0), False),
        (LeaseSpec("pod-a_1", lease_transitions=4), None, False),
    ],
    ids=[
        "the same holder",
        "given up",
        "the next process beside us",
        "the same after it was given up",
        "another one",
        "another one in between",
        "a Lease made anew",
        "no Lease",
    ],
)
def test_whether_others_can_have_held_it(then: LeaseSpec, now: LeaseSpec | None, only: bool) -> None:
    since = LeaseObserver().observe(then, 0.0)
    assert since.observe(now, 1.0).only("pod-a", since) is only
