"""What one part writes the others read: each value of the contract reads as it was written, and anything else is refused."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kompakt_core import contract
from kompakt_core.contract import (
    bound_gpus,
    conditions,
    counts,
    downward,
    gpu_holders,
    gpu_lists,
    placement_annotations,
    planned_seat,
    retried_at,
    words,
    worker_labels,
)
from kompakt_core.contract.bound_gpus import BoundGpus
from kompakt_core.contract.conditions import Condition
from kompakt_core.contract.gpu_holders import GpuHolder
from kompakt_core.contract.placement_annotations import PlacementAnnotations
from kompakt_core.contract.planned_seat import PlannedSeat
from kompakt_core.contract.worker_labels import AttemptLabels, WorkerLabels
from kompakt_core.errors import InvalidInput
from kompakt_core.patterns.edges import make_edges
from kompakt_core.patterns.names import NAMED, Pattern
from tests.support.core.outcomes import LONGEST, helps, outcome

NOW = "2026-01-31T12:00:00Z"
NUMBERS = st.integers(0, counts.MAX)
UUIDS = st.lists(st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", fullmatch=True), unique=True, max_size=9).map(tuple)
INDICES = st.lists(st.integers(0, 1023), unique=True, max_size=9).map(tuple)
NAMES = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,20}[a-z0-9])?", fullmatch=True)
PAIRS = st.tuples(st.integers(0, 15), st.integers(0, 15), st.integers(1, 1000)).filter(lambda edge: edge[0] != edge[1])
EDGES = st.lists(PAIRS, min_size=1, max_size=8).map(make_edges)
ASKED = st.fixed_dictionaries(
    {
        "sensitivity": st.sampled_from(words.Sensitivity),
        "policy": st.sampled_from(words.PlacementPolicy),
        "required_link": st.sampled_from(words.RequiredLink),
        "same_numa_node": st.booleans(),
    }
)
SHAPES = st.sampled_from(NAMED).map(lambda one: {"pattern": one}) | EDGES.map(lambda e: {"pattern": Pattern.CUSTOM, "edges": e})
REQUESTS = st.builds(lambda shape, asked: PlacementAnnotations(**shape, **asked), SHAPES, ASKED)
SEATS = st.builds(PlannedSeat, node=NAMES, rank=NUMBERS, gpus=UUIDS, min_value=st.none() | NUMBERS)
BOUND = st.integers(0, 8).flatmap(
    lambda size: st.builds(
        BoundGpus,
        uuids=UUIDS.filter(lambda uuids: len(uuids) >= size).map(lambda uuids: uuids[:size]),
        indices=st.permutations(range(16)).map(lambda order: tuple(order[:size])),
        value=NUMBERS,
    )
)
WORKERS = st.builds(WorkerLabels, st.builds(AttemptLabels, NAMES, NAMES, NUMBERS), role=NAMES, worker_index=NUMBERS)
TEXT = st.text(max_size=12)
HOLDERS = st.lists(st.builds(GpuHolder, uuid=NAMES, namespace=TEXT, pod=TEXT, pod_uid=TEXT), max_size=4).map(tuple)
TYPES = st.sampled_from([*conditions.Type, *conditions.TopologyType])
CONDITIONS = st.lists(
    st.builds(Condition, TYPES, st.sampled_from(["True", "False", "Unknown"]), TEXT, TEXT, st.text(min_size=1, max_size=12)),
    unique_by=lambda one: str(one.type),
    max_size=4,
).map(tuple)
MOMENTS = st.datetimes(timezones=st.just(UTC)).map(lambda moment: moment.replace(microsecond=0))
JSON = st.recursive(st.none() | st.booleans() | st.integers() | TEXT, lambda inner: st.lists(inner, max_size=3), max_leaves=6)
WRITTEN = st.text(alphabet="0123456789,-: GPUx٣", max_size=20) | st.text(max_size=20) | st.sampled_from(["Custom", "true", "0-1"])


def annotations(*keys: str) -> st.SearchStrategy[dict[str, str]]:
    """Some of these annotations, with anything written in them."""
    return st.fixed_dictionaries({}, optional=dict.fromkeys(keys, WRITTEN))


@dataclass(frozen=True)
class Codec:
    """How one value is written and read, and what its decoder may be given by anybody."""

    values: st.SearchStrategy[Any]
    encode: Callable[[Any], Any]
    decode: Callable[[Any], Any]
    anything: st.SearchStrategy[Any]


def all_holders(entries: Any) -> tuple[GpuHolder, ...]:
    """Every entry, as the device plugin writes them."""
    found = gpu_holders.readable(entries)
    if found.flaws:
        raise InvalidInput(found.flaws[0])
    return found.held


CODECS = {
    "count": Codec(NUMBERS, counts.encode, lambda text: counts.decode(text, "label x"), WRITTEN | JSON),
    "uuids": Codec(UUIDS, gpu_lists.encode_uuids, lambda text: gpu_lists.decode_uuids(text, "annotation x"), WRITTEN),
    "indices": Codec(INDICES, gpu_lists.encode_indices, lambda text: gpu_lists.decode_indices(text, "annotation x"), WRITTEN),
    "flag": Codec(st.booleans(), words.encode_flag, lambda text: words.decode_flag(text, "annotation x"), WRITTEN | JSON),
    "word": Codec(
        st.sampled_from(words.PlacementPolicy),
        str,
        lambda text: words.decode(text, words.PlacementPolicy, "annotation x"),
        WRITTEN | JSON,
    ),
    "placement annotations": Codec(
        REQUESTS, placement_annotations.encode, placement_annotations.decode, annotations(*contract.INPUT_ANNOTATIONS)
    ),
    "planned seat": Codec(SEATS, planned_seat.encode, planned_seat.decode, annotations(*contract.OUTPUT_ANNOTATIONS)),
    "moment of a retry": Codec(MOMENTS, retried_at.encode, retried_at.decode, annotations(contract.ANN_RETRIED_AT)),
    "bound GPUs": Codec(BOUND, bound_gpus.encode, bound_gpus.decode, annotations(*contract.OUTPUT_ANNOTATIONS)),
    "worker labels": Codec(
        WORKERS,
        worker_labels.encode,
        worker_labels.decode,
        annotations(*(name for key, name in vars(contract).items() if key.startswith("LABEL_"))),
    ),
    "downward annotation": Codec(
        st.sampled_from(sorted(contract.OUTPUT_ANNOTATIONS)),
        downward.encode,
        downward.decode,
        JSON | st.fixed_dictionaries({"fieldRef": JSON | st.fixed_dictionaries({"fieldPath": JSON})}),
    ),
    "GPU holders": Codec(
        HOLDERS.map(lambda held: tuple(sorted(held))),
        gpu_holders.encode,
        all_holders,
        JSON | st.lists(st.dictionaries(st.sampled_from(["uuid", "pod", "podUID", "namespace"]), JSON), max_size=3),
    ),
    "conditions": Codec(
        CONDITIONS,
        lambda wanted: conditions.stamped(wanted, {}, "", 3),  # one without a moment gets none
        lambda items: tuple(conditions.read_conditions(items).values()),
        JSON | st.lists(st.dictionaries(st.sampled_from(["type", "status", "reason", "lastTransitionTime"]), JSON), max_size=3),
    ),
}


@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
@given(st.data())
def test_a_value_reads_as_it_was_written(codec: Codec, data: st.DataObject) -> None:
    value = data.draw(codec.values)
    assert codec.decode(codec.encode(value)) == value


@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
@given(st.data())
def test_anything_else_is_read_or_refused_with_what_was_wrong_where_and_what_would_be_right(
    codec: Codec, data: st.DataObject
) -> None:
    written = data.draw(codec.anything)
    found = outcome(codec.decode, written)
    if not isinstance(found, InvalidInput):
        assert found is None or codec.decode(codec.encode(found)) == found
    elif "edge" not in str(found):  # edges tell what would be right in words of their own
        assert helps(found)
    assert len(str(found)) <= LONGEST or not isinstance(found, InvalidInput)


@given(annotations(*contract.INPUT_ANNOTATIONS))
def test_what_can_be_read_of_a_bound_pods_request_is_kept_and_nothing_is_made_up(written: dict[str, str]) -> None:
    found = placement_annotations.readable(written)
    strict = outcome(placement_annotations.decode, written)
    assert found == strict or isinstance(strict, InvalidInput)
    said = {key: text for key, text in placement_annotations.encode(found).items() if key in written}
    alone = {key: outcome(placement_annotations.decode, {key: written[key]}) for key in said if key != contract.ANN_EDGES}
    for key, one in alone.items():
        if isinstance(one, PlacementAnnotations) and key != contract.ANN_PATTERN:
            assert said[key] == written[key]


def test_a_demand_stands_though_another_annotation_cannot_be_read() -> None:
    written = {contract.ANN_PATTERN: "Moebius", contract.ANN_REQUIRED_LINK: "NVLink", contract.ANN_SAME_NUMA: "true"}
    assert placement_annotations.readable(written) == PlacementAnnotations(
        required_link=words.RequiredLink.NVLINK, same_numa_node=True
    )


def test_a_custom_pattern_without_edges_that_can_be_read_counts_as_none() -> None:
    for written in ({contract.ANN_PATTERN: "Custom", contract.ANN_EDGES: "0-0"}, {contract.ANN_PATTERN: "Custom"}):
        assert placement_annotations.readable(written) == PlacementAnnotations()
    assert placement_annotations.readable({contract.ANN_EDGES: "0-1"}) == PlacementAnnotations()


@pytest.mark.parametrize(
    ("decode", "written", "says"),
    [
        (gpu_lists.decode_uuids, "GPU-0,,GPU-1", "a UUID is empty"),
        (gpu_lists.decode_uuids, "GPU-0,GPU-1,GPU-0", "'GPU-0' stands there twice"),
        (gpu_lists.decode_uuids, "x" * 70_000, "70000 characters"),
        (gpu_lists.decode_indices, "0,0", "'0,0' names a GPU twice"),
        (gpu_lists.decode_indices, "0,+1", "'+1' is not a whole number"),
        (counts.decode, "007", "'007' is not a whole number"),
        (counts.decode, "٣", "'٣' is not a whole number"),
        (counts.decode, str(1 << 63), "is not a whole number"),
        (words.decode_flag, "True", "'True' is not known; right would be false, true"),
    ],
)
def test_a_refusal_names_the_place_and_what_is_wrong(decode: Callable[[str, str], Any], written: str, says: str) -> None:
    refused = outcome(decode, written, "kompakt.dev/x")
    assert helps(refused, "kompakt.dev/x: ")
    assert says in str(refused)


def test_indices_that_do_not_belong_to_the_uuids_are_refused() -> None:
    found = BoundGpus(("GPU-a", "GPU-b"), (0, 1), 5)  # type: ignore[arg-type]
    written = bound_gpus.encode(found) | {contract.ANN_GPU_INDICES: "0"}
    assert "1 indices for 2 UUIDs" in str(outcome(bound_gpus.decode, written))


@given(st.text())
def test_any_text_on_a_pod_gives_distinct_uuids_or_none(text: str) -> None:
    uuids = gpu_lists.readable_uuids(text)
    assert len(set(uuids)) == len(uuids)
    assert all(uuid == uuid.strip() and "," not in uuid and uuid for uuid in uuids)
    strict = outcome(gpu_lists.decode_uuids, text, "x")
    assert isinstance(strict, InvalidInput) or strict == uuids


NAMES_NO_GPU = [{}, {"uuid": ""}, {"uuid": 3, "podUID": "u"}, "GPU-0", None]
NAMES_A_GPU = {"no pod at all": {"uuid": "GPU-1"}, "a uid that is no text": {"uuid": "GPU-1", "pod": "p", "podUID": 7}}
LAST = GpuHolder("GPU-2", "ns", "last", "uid-last")  # type: ignore[arg-type]


@pytest.mark.parametrize("entry", [*NAMES_NO_GPU, *NAMES_A_GPU.values()])
def test_a_broken_entry_hides_no_other_holder_and_the_gpu_that_it_names_is_held(entry: Any) -> None:
    found = gpu_holders.readable([entry, *gpu_holders.encode([LAST])])
    assert found.held[-1] == LAST
    assert found.complete == (entry in NAMES_A_GPU.values())
    assert [one.uuid for one in found.held[:-1]] == ["GPU-1"] * found.complete


@pytest.mark.parametrize(
    "entries", [*([one] for one in NAMES_NO_GPU), [NAMES_A_GPU["a uid that is no text"]], {"uuid": "G"}, "G"]
)
def test_a_list_of_holders_that_the_device_plugin_never_writes_is_said_with_its_place(entries: Any) -> None:
    assert helps(outcome(all_holders, entries), "status.held")
    assert gpu_holders.readable(entries).complete == bool(gpu_holders.readable(entries).held)


@pytest.mark.parametrize(
    "path", ["metadata.name", "metadata.annotations['a'].b", "metadata.annotations['']", "metadata.annotations"]
)
def test_a_field_that_is_no_annotation_is_refused(path: str) -> None:
    assert helps(outcome(downward.decode, {"fieldRef": {"fieldPath": path}}), "fieldPath")


@pytest.mark.parametrize(
    ("new", "since"),
    [
        (Condition("Placed", "True", "Released"), "before"),  # the same status: a reason does not move it
        (Condition("Placed", "False", "Waiting"), NOW),
        (Condition("Placed", "False", "Waiting", since="asked"), "asked"),
        (Condition("Running", "True", "AllWorkersRan"), NOW),
    ],
)
def test_a_condition_keeps_its_moment_until_its_status_changes(new: Condition, since: str) -> None:
    before = {"Placed": Condition("Placed", "True", "Planned", since="before")}
    [written] = conditions.stamped([new], before, NOW)
    assert (written["lastTransitionTime"], "observedGeneration" in written) == (since, False)


def test_a_selector_finds_the_pods_that_are_labelled() -> None:
    worker = WorkerLabels(AttemptLabels("j", "u", 3), "r", 7)
    labels = worker_labels.encode(worker)
    assert worker_labels.attempt_selector("u", 3).items() <= labels.items()
    assert worker_labels.job_selector("u").split("=") == [contract.LABEL_JOB_UID, labels[contract.LABEL_JOB_UID]]
    assert worker_labels.job_name_selector("j").split("=") == [contract.LABEL_JOB_NAME, labels[contract.LABEL_JOB_NAME]]
    assert (worker_labels.attempt(labels), worker_labels.worker_index(labels), worker_labels.role(labels)) == (3, 7, "r")
