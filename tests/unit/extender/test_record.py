"""status.scheduling: what is written is read back, and what somebody else wrote is refused with a sentence."""

import contextlib
import json
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from kompakt_core.contract import scheduling_record, timestamps
from kompakt_core.contract.preempt_request import PreemptRequest
from kompakt_core.contract.scheduling_record import Excluded, PlanRecord, Record, SeatRecord, State, Victim
from kompakt_core.errors import InvalidInput
from kompakt_core.ids import GpuUuid, NodeName, PodUid
from kompakt_extender.quantities import count, millis, whole

TIMES = st.datetimes(datetime(2026, 1, 1), datetime(2036, 1, 1), timezones=st.just(UTC)).map(timestamps.encode)
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=12)
NUMBERS = st.integers(0, 1 << 40)
SEATS = st.builds(
    SeatRecord,
    name=TEXT,
    uid=TEXT.map(PodUid),
    node=TEXT.map(NodeName),
    gpus=st.lists(TEXT.map(GpuUuid), max_size=4).map(tuple),
    value=NUMBERS,
    rank=NUMBERS,
)
PLANS = st.builds(
    PlanRecord, level=TEXT, value=NUMBERS, ideal=NUMBERS, released_at=TIMES, pods=st.lists(SEATS, max_size=3).map(tuple)
)
UUIDS = st.lists(TEXT.filter(bool).map(GpuUuid), min_size=1, max_size=3).map(tuple)
VICTIMS = st.lists(st.builds(Victim, TEXT, TEXT, TEXT, NUMBERS, st.integers(-(1 << 31), 1 << 31)), min_size=1, max_size=2).map(
    tuple
)
SOME = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1, max_size=8)
PREEMPTS = st.builds(
    PreemptRequest, NUMBERS, requested_at=TIMES, namespace=SOME, name=SOME, uid=SOME, priority=st.integers(), own_priority=NUMBERS
)
RECORDS = st.builds(
    Record,
    attempt=NUMBERS,
    state=st.sampled_from(State),
    reason=TEXT,
    message=TEXT,
    waiting_since=TEXT,
    excluded=st.lists(st.builds(Excluded, node=TEXT.map(NodeName), until=TIMES, reason=TEXT), max_size=3).map(tuple),
    plan=st.none() | PLANS,
    placeable_since=st.just("") | TIMES,
    waits_for=TEXT,
    until=st.just("") | TIMES,
    overtaken=NUMBERS,
    reserved_counts=st.lists(st.tuples(TEXT.map(NodeName), NUMBERS), max_size=2).map(tuple),
    reserved_gpus=st.lists(st.tuples(TEXT.map(NodeName), UUIDS), max_size=2).map(tuple),
    preempt=st.none() | PREEMPTS,
) | st.builds(Record, NUMBERS, st.just(State.RESERVED), TEXT, TEXT, TEXT, victims=VICTIMS, decided_at=TIMES)


@settings(deadline=None, max_examples=50)
@given(RECORDS)
def test_what_is_written_is_read_back(record: Record) -> None:
    assert scheduling_record.decode(json.loads(json.dumps(scheduling_record.encode(record)))) == record


def allowed(schema: dict[str, Any], value: Any) -> bool:
    """Whether a value has only fields that the schema names, at every depth."""
    if isinstance(value, dict):
        return all(key in schema["properties"] and allowed(schema["properties"][key], one) for key, one in value.items())
    if isinstance(value, list):
        return all(allowed(schema["items"], one) for one in value)
    return True


@settings(deadline=None, max_examples=50)
@given(RECORDS)
def test_the_resource_definition_names_every_field_we_write(record: Record) -> None:
    assert allowed(scheduling_schema(), scheduling_record.encode(record))
    assert record.state.value in scheduling_schema()["properties"]["state"]["enum"]


@cache
def scheduling_schema() -> dict[str, Any]:
    text = (Path(__file__).parents[3] / "crds" / "trainingjobs.yaml").read_text()
    version = yaml.load(text, Loader=yaml.CSafeLoader)["spec"]["versions"][0]
    found: dict[str, Any] = version["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]["scheduling"]
    return found


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["pods", "node", "until", "uid", "x"]), inner),
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
