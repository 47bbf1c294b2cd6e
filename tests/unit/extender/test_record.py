"""status.scheduling: what is written is read back, and what somebody else wrote is refused with a sentence."""

import contextlib
import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kompakt_core.contract import scheduling_record, timestamps
from kompakt_core.contract.plan_record import PlanRecord, SeatRecord
from kompakt_core.contract.preempt_request import PreemptRequest
from kompakt_core.contract.scheduling_record import Excluded, Record, State, Victim
from kompakt_core.errors import InvalidInput
from kompakt_core.ids import GpuUuid, NodeName
from kompakt_extender.quantities import count, millis, whole

TIMES = st.datetimes(datetime(2026, 1, 1), datetime(2036, 1, 1), timezones=st.just(UTC)).map(timestamps.encode)
SOME = st.text(min_size=1, max_size=8)
UUIDS = st.lists(SOME.map(GpuUuid), min_size=1, max_size=3).map(tuple)
# All other fields follow from their types.
PREEMPTS = st.builds(PreemptRequest, requested_at=TIMES, namespace=SOME, name=SOME, uid=SOME, own_priority=st.integers(0))
PLAIN = st.builds(SeatRecord, gpus=UUIDS, indices=st.just(()))  # as an earlier version wrote them
INDEXED = st.builds(SeatRecord, gpus=st.just(()), indices=st.lists(st.integers(0, 63), unique=True).map(tuple))


@st.composite
def plans(draw: st.DrawFn) -> PlanRecord:
    """Places in order of ranks."""
    digest = draw(st.just("") | SOME)
    seats = draw(st.lists(INDEXED if digest else PLAIN, max_size=4))
    ordered = tuple(replace(seat, rank=rank) for rank, seat in enumerate(seats))
    return draw(st.builds(PlanRecord, released_at=TIMES, digest=st.just(digest), pods=st.just(ordered)))


PLANS = plans()
RECORDS = st.builds(
    Record,
    excluded=st.lists(st.builds(Excluded, until=TIMES), max_size=3).map(tuple),
    plan=st.none() | PLANS,
    placeable_since=st.just("") | TIMES,
    waits_for=st.text(),
    until=st.just("") | TIMES,
    overtaken=st.integers(0),
    reserved_counts=...,
    reserved_gpus=st.lists(st.tuples(SOME.map(NodeName), UUIDS), max_size=2).map(tuple),
    preempt=st.none() | PREEMPTS,
) | st.builds(
    Record, state=st.just(State.RESERVED), victims=st.lists(st.from_type(Victim), min_size=1).map(tuple), decided_at=TIMES
)


@settings(deadline=None, max_examples=50)
@given(RECORDS)
def test_what_is_written_is_read_back(record: Record) -> None:
    assert scheduling_record.decode(json.loads(json.dumps(scheduling_record.encode(record)))) == record


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["pods", "nodes", "gpusDigest", "gpus", "node", "until", "uid", "x"]), inner)
    ),
    max_leaves=6,
)


@settings(deadline=None)
@given(
    st.dictionaries(st.sampled_from(["attempt", "state", "plan", "excludedNodes", "waitingSince"]), _JSON | st.just("Released"))
)
def test_anything_else_is_refused_with_a_sentence(scheduling: dict[str, Any]) -> None:
    with contextlib.suppress(InvalidInput):
        scheduling_record.decode(scheduling)


def test_a_node_left_out_keeps_its_own_time_and_is_forgotten_after_it() -> None:
    record = Record(1, State.WAITING, "", "", "").excluding([NodeName("a")], "2026-01-01T00:10:00Z", "NotBound")
    record = record.excluding([NodeName("a"), NodeName("b")], "2026-01-01T00:20:00Z", "NotBound")
    assert [(one.node, one.until[14:16]) for one in record.excluded] == [("a", "10"), ("b", "20")]
    later = record.without_expired(datetime(2026, 1, 1, 0, 15, tzinfo=UTC))
    assert [one.node for one in later.excluded] == ["b"]


@pytest.mark.parametrize(("text", "value"), [("500m", 500), ("2", 2000), ("1.5", 1500), ("1u", 1), ("0", 0)])
def test_cpu_is_read_as_kube_scheduler_reads_it(text: str, value: int) -> None:
    assert millis(text) == value


@pytest.mark.parametrize(("text", "value"), [("2Gi", 2 << 30), ("1k", 1000), ("1e3", 1000), ("100m", 1)])
def test_memory_is_read_as_kube_scheduler_reads_it(text: str, value: int) -> None:
    assert whole(text) == value


@pytest.mark.parametrize("text", ["0.5", "-1", "x", "NaN", "", "1e999999999"])
def test_gpus_are_counted_whole(text: str) -> None:
    with pytest.raises(InvalidInput):
        count(text)


@settings(deadline=None)
@given(st.text(max_size=12))
def test_any_quantity_is_read_or_refused(text: str) -> None:
    for read in (millis, whole, count):
        with contextlib.suppress(InvalidInput):
            assert isinstance(read(text), int)
