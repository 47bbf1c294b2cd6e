"""Rules of a link graph, its digest, its public form, and its form in the API."""

import copy
import json
import pickle
from importlib.resources import files
from itertools import combinations
from typing import Any

import networkx
import pytest

from kompakt_core.ids import GpuIndex, GpuUuid
from kompakt_core.topology.describe import read_description
from kompakt_core.topology.graph import Gpu, Link, LinkGraph, LinkKind
from kompakt_core.topology.machines import MACHINES, machine
from kompakt_core.topology.wire import graph_from_spec, graph_to_spec
from tests.support.core.outcomes import refusal


def gpu(index: int, uuid: str = "") -> Gpu:
    return Gpu(GpuIndex(index), GpuUuid(uuid or f"GPU-{index}"))


def link(a: int, b: int, speed: int = 6000) -> Link:
    return Link(GpuIndex(a), GpuIndex(b), LinkKind.SYS, 0, speed)


@pytest.mark.parametrize(
    ("gpus", "links", "sentence"),
    [
        ([gpu(1)], [], "GPU at position 0 has index 1"),
        ([gpu(0, "a,b")], [], "'a,b' is no UUID"),
        ([gpu(0, "x" * 64)], [], "is no UUID"),
        ([gpu(0, "a"), gpu(1, "a")], [link(0, 1)], "GPU 1: UUID a appears twice"),
        ([gpu(0), gpu(1)], [], "no link between GPUs 0 and 1"),
        ([gpu(0), gpu(1)], [link(0, 1), link(0, 1)], "GPUs 0 and 1 have 2 links"),
        ([gpu(0), gpu(1)], [link(1, 0)], "link 1-0: must join GPUs a < b below 2"),
        ([gpu(0)], [link(0, 0)], "link 0-0: must join"),
        ([gpu(0), gpu(1)], [link(0, 2)], "link 0-2: must join"),
        ([gpu(0), gpu(1)], [link(0, 1, -1)], "must not be negative"),
        ([gpu(0), gpu(1), gpu(2)], [link(0, 1), link(1, 2), link(0, 2)], "links must be ordered"),
    ],
)
def test_a_graph_that_breaks_a_rule_is_refused(gpus: list[Gpu], links: list[Link], sentence: str) -> None:
    assert sentence in refusal(LinkGraph, tuple(gpus), tuple(links))


@pytest.mark.parametrize("name", sorted(MACHINES))
def test_every_known_machine_survives_the_api(name: str) -> None:
    graph = machine(name)
    spec = json.loads(json.dumps(graph_to_spec(graph, node_uid="u-1", source="text", driver_version="570.1")))
    assert graph_from_spec(spec) == graph
    assert (spec["nodeUID"], spec["source"], spec["driverVersion"]) == ("u-1", "text", "570.1")


@pytest.mark.parametrize("name", sorted(MACHINES))
def test_link_finds_every_pair_and_networkx_agrees(name: str) -> None:
    graph = machine(name)
    public = graph.to_networkx()
    assert public.number_of_edges() == len(graph.links)
    for a, b in combinations(range(graph.size), 2):
        assert graph.link(a, b) is graph.link(b, a)
        assert (graph.link(a, b).a, graph.link(a, b).b) == (a, b)
        assert public.edges[a, b]["weight"] == graph.weights[a][b] == graph.link(b, a).megabytes_per_second


DATA = files("kompakt_core.topology") / "data"
ENTRIES = json.loads((DATA / "topo_matrices.json").read_text())["matrices"]


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry["id"])
def test_every_matrix_of_the_data_is_read_cell_by_cell(entry: dict[str, Any]) -> None:
    graph = machine(entry["id"])
    assert graph.size == len(entry["matrix"])
    for a, b in combinations(range(graph.size), 2):
        word, found = entry["matrix"][a][b], graph.link(a, b)
        if word.startswith("NV"):
            assert found.kind in (LinkKind.NVLINK, LinkKind.NVSWITCH)
            assert f"NV{found.lanes}" == word
        else:
            assert (found.kind.value, found.lanes) == (word, 0)
    numa = entry.get("numa", [])
    assert [gpu.numa_node for gpu in graph.gpus][: len(numa)] == numa
    # One report shows fewer cells for its network card than GPUs: that card is left out.
    cards = {name: tuple(cells) for name, cells in entry.get("nic", {}).items() if len(cells) == graph.size}
    assert {nic.name: nic.paths for nic in graph.nics} == cards
    assert graph.uneven == ()


AMD = {entry["id"]: entry for entry in json.loads((DATA / "topo_matrices.json").read_text())["amd"]}


def test_machines_of_amd_are_those_of_the_data() -> None:
    hives = AMD["mi210-8-two-hives"]
    for a, b in combinations(range(8), 2):
        found = machine("mi210-8-two-hives").link(a, b)
        assert (found.kind is LinkKind.XGMI) == (hives["link_type"][a][b] == 11) == (hives["weight"][a][b] == 15)
        assert found.megabytes_per_second == (hives["max_bw_mbs"][a][b] or 6_000)
    for name, kind in (("mi300x-8", LinkKind.XGMI), ("amd-4-pcie", LinkKind.SYS)):
        assert AMD[name]["link"] == ("XGMI" if kind is LinkKind.XGMI else "PCIE")
        assert {link.kind for link in machine(name).links} == {kind}


def test_machines_of_all_sizes_are_known() -> None:
    sizes = {name: known.gpus for name, known in MACHINES.items()}
    assert all(machine(name).size == size for name, size in sizes.items())
    assert set(sizes.values()) == {2, 4, 5, 6, 8, 16, 64}
    assert all(known.source for known in MACHINES.values())


def test_a_partitioned_mi300x_is_eight_groups_of_eight() -> None:
    weights = machine("mi300x-8-cpx").weights
    assert {weights[a][b] for a, b in combinations(range(64), 2) if a // 8 == b // 8} == {662_500}
    assert {weights[a][b] for a, b in combinations(range(64), 2) if a // 8 != b // 8} == {64_000}


def test_published_figures_of_known_machines() -> None:
    double = [(x.a, x.b) for x in machine("dgx1-v100").links if x.lanes == 2]
    cycle = networkx.Graph(double)
    assert len(double) == 8
    assert networkx.is_isomorphic(cycle, networkx.cycle_graph(8)), "the double links form one cycle of eight"
    nvlink = [x for x in machine("dgx1-v100").links if x.kind is LinkKind.NVLINK]
    assert sum(x.megabytes_per_second for x in nvlink) == 600_000, "MAPA's dgx-v: 16 links, 600 GB/s"
    assert sum(x.megabytes_per_second for x in machine("dgx1-p100").links if x.lanes) == 320_000, "MAPA's dgx-p"
    assert machine("hgx-h100-8").links[0].megabytes_per_second == 18 * 26_562
    assert machine("gb200-tray-4").links[0].megabytes_per_second == 18 * 53_125


def test_the_digest_ignores_names_and_sees_links_and_numa_nodes() -> None:
    one, two = (read_description("dgx1-v100", node) for node in ("a", "b"))
    assert one != two
    assert one.digest == two.digest
    distinct = [name for name in MACHINES if name != "h800-8-shared"]  # the links of h800-8
    assert len({machine(name).digest for name in distinct}) == len(distinct)


def test_descriptions_give_each_node_gpus_of_its_own_that_stay() -> None:
    one, again, other = (read_description(" dgx1-v100\n", node) for node in ("a", "a", "b"))
    assert one == again
    assert not {x.uuid for x in one.gpus} & {x.uuid for x in other.gpus}
    text = read_description(MACHINES["dgx1-v100"].text, "a")
    assert [x.uuid for x in text.gpus] == [x.uuid for x in one.gpus]


@pytest.mark.parametrize(
    ("text", "sentence"), [("", "empty description"), ("dgx9", "unknown machine 'dgx9'; known are"), ("a b", "link matrix")]
)
def test_wrong_descriptions_are_refused(text: str, sentence: str) -> None:
    assert sentence in refusal(read_description, text, "a")


def spec_of(**changes: Any) -> dict[str, Any]:
    return graph_to_spec(machine("rtx8000-4"), node_uid="u", source="text") | changes


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        (None, "spec: expected an object, found null"),
        ({}, "spec.gpus: is missing"),
        (spec_of(gpus={}), "spec.gpus: expected a list, found an object"),
        (spec_of(gpus=[{}]), "spec.gpus[0].index: is missing"),
        (spec_of(gpus=[{"index": "0", "uuid": "a"}]), "spec.gpus[0].index: expected an integer, found a string"),
        (spec_of(gpus=[{"index": True, "uuid": "a"}]), "spec.gpus[0].index: expected an integer, found a boolean"),
        (spec_of(gpus=[{"index": 0, "uuid": 5}]), "spec.gpus[0].uuid: expected a string"),
        (spec_of(gpus=[{"index": 0, "uuid": "a"}]), "spec: link 0-1: must join GPUs a < b below 1"),
        (spec_of(gpus=[{"index": 0, "uuid": "a", "health": "Fine"}]), "spec.gpus[0].health: must be Healthy or Unhealthy"),
        (spec_of(gpus=[{"index": 0, "uuid": "a", "migEnabled": 1}]), "spec.gpus[0].migEnabled: expected true or false"),
        (spec_of(links=[]), "spec: no link between GPUs 0 and 1"),
        (spec_of(links=[{"a": 0, "b": 1, "kind": "NV2"}]), "spec.links[0].kind: must be one of NVLink"),
        (spec_of(links=[{"a": 0, "b": 1, "kind": "SYS", "megabytesPerSecond": 1.5}]), "found a decimal number"),
        (spec_of(links=[{"a": 0, "b": 1, "kind": "SYS", "megabytesPerSecond": 1 << 60}]), "must be from 0 to 2^53"),
        (spec_of(links=[{"a": -1, "b": 1, "kind": "SYS", "megabytesPerSecond": 1}]), "spec.links[0].a: must be from 0"),
        (spec_of(gpus=[{}] * 65), "spec.gpus: 65 entries; at most 64 are allowed"),
    ],
)
def test_a_wrong_spec_is_refused_with_its_field(spec: Any, sentence: str) -> None:
    assert sentence in refusal(graph_from_spec, spec)


def test_links_of_a_spec_may_come_in_any_order_and_direction() -> None:
    spec = spec_of()
    spec["links"] = [entry | {"a": entry["b"], "b": entry["a"]} for entry in reversed(spec["links"])]
    assert graph_from_spec(spec) == machine("rtx8000-4")


@pytest.mark.parametrize("copied", [lambda graph: pickle.loads(pickle.dumps(graph)), copy.deepcopy], ids=["pickled", "copied"])
def test_a_graph_of_another_process_shares_the_tables_of_its_kind(copied):
    graph = machine("dgx1-v100")
    bare = len(pickle.dumps(graph))
    assert graph.shared.graph.digest == graph.digest
    assert graph.weights
    other = copied(graph)
    assert other == graph
    assert other.shared is graph.shared
    assert len(pickle.dumps(graph)) == bare, "what is computed does not travel"
