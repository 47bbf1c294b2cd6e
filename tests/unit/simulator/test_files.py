"""Cluster and network files: what they say, and what is said about broken ones."""

import json
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kompakt_core.errors import InvalidInput
from kompakt_core.placement.model import Level
from kompakt_simulator.cluster import ClusterShape, ClusterState, GpuSet
from kompakt_simulator.cluster_file import parse_shape
from kompakt_simulator.jobs import Milliseconds, TraceJob
from kompakt_simulator.network import Network, network_on, parse_network
from kompakt_simulator.placements import levels

GRID = ClusterShape.grid(2, 2, 4)
LEVELS = {"machine": 0.05, "rack": 1, "cluster": 8}
TEXT = json.dumps({"levels": LEVELS, "models": {"bert": 0.3}, "nic": {"2": 1.5, "4": 3}})


def network(text: str, name: str = "n.json") -> Network:
    return network_on(parse_network(text, name), GRID)


NET = network(TEXT)


def job(gpus: int, model: str = "", ratio: float | None = None, number: int = 0) -> TraceJob:
    return TraceJob(number, Milliseconds(0), Milliseconds(1), gpus, model, ratio)


@pytest.mark.parametrize(
    ("gpus", "slowdown"),
    [
        (0b1111, 0.3 * 0.05),  # one machine
        (0b0001_0001, 0.3 * 1),  # one rack, one GPU per machine: the card is its own
        (0b0011_0011, 0.3 * 1 * 1.5),  # two GPUs share a card
        (0b0111_0001, 0.3 * 1 * 1.5),  # three: the entry for two is the nearest below
        (0b1111_1111, 0.3 * 1 * 3),
        (0b0001_0000_0000_0001, 0.3 * 8),  # two racks
    ],
)
def test_slowdown_is_ratio_times_level_times_card(gpus: int, slowdown: float) -> None:
    assert NET.slowdown(NET.ratio(job(2, "bert")), GRID, GpuSet(gpus)) == pytest.approx(slowdown)


def test_ratio_comes_from_the_job_or_its_model_or_by_its_number() -> None:
    unnamed = Network({Level.RACK: 1.0}, {"ResNet-50": 0.08}, (0.6, 0.3))
    assert NET.ratio(job(1, "bert")) == 0  # one GPU talks to nobody
    assert NET.ratio(job(2, "bert", 0.7)) == 0.7
    assert unnamed.ratio(job(2, "ResNet-50 (batch size 64)")) == 0.08
    assert {unnamed.ratio(job(2, number=number)) for number in range(20)} == {0.6, 0.3}
    with pytest.raises(InvalidInput, match=r"^job 7, line 3 of the trace: model 'gpt'"):
        NET.ratio(TraceJob(7, Milliseconds(0), Milliseconds(1), 2, "gpt", line=3))
    with pytest.raises(
        InvalidInput, match="job 0: model 'gpt' is not in the network file; known models: bert; or give comm_ratio"
    ):
        NET.ratio(job(2, "gpt"))
    with pytest.raises(InvalidInput, match="no model is named"):
        NET.ratio(job(2))


def test_blocks_and_unequal_racks_make_levels() -> None:
    shape = parse_shape('{"blocks": [[[8, 8], [8]], [[4]]]}', "c.json")
    assert shape.levels.sizes == ((Level.MACHINE, 8), (Level.RACK, 16), (Level.BLOCK, 24), (Level.CLUSTER, 28))
    sets = {Level.MACHINE: 0b11, Level.RACK: 1 << 8 | 1, Level.BLOCK: 1 << 16 | 1, Level.CLUSTER: 1 << 24 | 1}
    assert {level: shape.level_of(GpuSet(gpus)) for level, gpus in sets.items()} == {level: level for level in sets}
    assert [shape.level_of(levels(ClusterState.of(shape), size) or GpuSet(0)) for size in (8, 9, 17, 25)] == list(Level)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "line 2, column 1: no YAML"),
        ("[]", "line 1, .*got \\[\\]; expected"),
        ('{"racks": [[1]], "blocks": [[[1]]]}', "racks and blocks; expected"),
        ('{"racks": []}', "racks: got \\[\\]"),
        ('{"racks": [[8],\n []]}', "line 2, column 2: rack 1: got \\[\\]"),
        ('{"racks": [[0]]}', "a machine of 0 GPUs; expected a whole number from 1"),
        ('{"racks": [[true]]}', "a machine of True GPUs"),
        ('{"racks": [[900000, 900000]]}', "1800000 GPUs; expected at most 1000000"),
        ('{"blocks": [[8]]}', "rack 0: got 8"),
    ],
)
def test_broken_cluster_files_are_refused(text: str, words: str) -> None:
    with pytest.raises(InvalidInput, match=f"^c.json.*{words}"):
        parse_shape(text, "c.json")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"levels":\n {', "line 3, column 1: no YAML"),
        ("{}", "got nothing; expected levels"),
        ("- 1", "line 1, column 1: got \\[1\\]; expected levels"),
        ('{"levels": {}, "machine": 1}', "got levels, machine; expected levels"),
        ('{"levels": {},\n "speed": 1}', "line 2, column 11: unknown entry 'speed'; expected levels"),
        ("machine: 0\nrack: 1\ncluster: fast", "line 3, column 10: cluster: got 'fast'; expected a number from 0"),
        ("machine: 0\nrack: 1\ncluster: 1\nracks: [[no]]", "line 4, column 10: a machine of 'no' GPUs"),
        ('{"levels": {"machine": 0, "rack": 1}}', "levels: level cluster is missing; expected machine, rack, cluster"),
        ('{"levels": {"machine": 0, "rack": 1, "cluster": 1, "row": 2}}', "unknown level 'row'"),
        ('{"levels": {"machine": -1, "rack": 1, "cluster": 1}}', "levels.machine: got -1; expected a number from 0"),
        (
            '{"levels": {"machine": 1, "rack": 2, "cluster": 1}}',
            "levels.cluster: got 1; expected at least 2, which rack has inside",
        ),
        ("machine: 1\nrack: .5\ncluster: 9", "line 2, column 7: rack: got 0.5; expected at least 1"),
        ('{"levels": {"machine": NaN, "rack": 1, "cluster": 1}}', "levels.machine: got 'NaN'"),
        ('{"levels": {"machine": 0, "rack": 1, "cluster": 1}, "models": {"m": "fast"}}', "models.m: got 'fast'"),
        ('{"levels": {"machine": 0, "rack": 1, "cluster": 1}, "unnamed": 3}', "unnamed: got 3; expected a list"),
        (
            '{"levels": {"machine": 0, "rack": 1, "cluster": 1}, "nic": {"few": 1}}',
            "line 1, column 68: nic.few: got 'few'; expected numbers",
        ),
    ],
)
def test_broken_network_files_are_refused(text: str, words: str) -> None:
    with pytest.raises(InvalidInput, match=f"^n.json.*{words}"):
        network(text)


def test_a_network_file_may_be_yaml_and_name_its_levels_alone() -> None:
    assert network("machine: .05\nrack: 1\ncluster: 8e0\nmodels: {bert: 0.3}\nnic: {2: 1.5, 4: 3}\n") == NET


def test_a_network_file_may_describe_unequal_racks() -> None:
    file = parse_network(json.dumps({**LEVELS, "racks": [[8, 8], [4]]}), "n.json")
    assert file.shape == parse_shape('{"racks": [[8, 8], [4]]}', "c.json")
    assert parse_network(TEXT, "n.json").shape is None


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 10**7) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["machine", "rack", "cluster", "1", "x"]), inner),
    max_leaves=8,
)
FILES = st.dictionaries(st.sampled_from(["racks", "blocks", "levels", "models", "unnamed", "nic"]), VALUES, max_size=4)


@settings(deadline=None)
@given(st.one_of(FILES.map(json.dumps), st.text(max_size=30)))
def test_any_text_is_read_or_refused_with_the_name_of_its_file(text: str) -> None:
    for read in (lambda: parse_shape(text, "c.json"), lambda: network(text, "c.json")):
        assert refusal(read) in ("", "c.json")


def refusal(read: Callable[[], object]) -> str:
    """The beginning of what a reader says against its file, "" if nothing."""
    try:
        read()
    except InvalidInput as error:
        return str(error)[:6]
    return ""
