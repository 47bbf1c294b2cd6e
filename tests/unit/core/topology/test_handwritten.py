"""Machines written by hand: the short form, its errors with line and column, and the way there and back."""

import json

import pytest
import yaml

from kompakt_core.topology.describe import read_description
from kompakt_core.topology.document import MAX_DEPTH, read_document
from kompakt_core.topology.graph import LinkGraph
from kompakt_core.topology.handwritten import about, graph_to_yaml, parse_handwritten
from kompakt_core.topology.machines import MACHINES, machine
from kompakt_core.topology.wire import graph_to_spec
from tests.support.core.outcomes import refusal

SHORT = """\
gpus: 4
model: A100
numaNodes: [0, 0, 1, 1]
links:
- {kind: NV12, pairs: [0-1, 2-3]}
- {kind: SYS}            # all other pairs
nics:
- {name: mlx5_0, numaNode: 0, megabytesPerSecond: 25000, paths: [PIX, PIX, SYS, SYS]}
"""


def links(graph: LinkGraph) -> list[tuple[str, int, int, int]]:
    return [(link.kind.value, link.lanes, link.generation, link.megabytes_per_second) for link in graph.links]


def test_the_short_form_is_a_machine() -> None:
    graph = parse_handwritten(SHORT)
    bridge, far = ("NVLink", 12, 3, 12 * 25_781), ("SYS", 0, 0, 6_000)
    assert links(graph) == [bridge, far, far, far, far, bridge]
    assert [(gpu.numa_node, gpu.model) for gpu in graph.gpus] == [(0, "A100"), (0, "A100"), (1, "A100"), (1, "A100")]
    assert graph.nics[0].paths == ("PIX", "PIX", "SYS", "SYS")


@pytest.mark.parametrize("name", sorted(MACHINES))
def test_every_known_machine_survives_yaml(name: str) -> None:
    assert parse_handwritten(graph_to_yaml(machine(name))) == machine(name)


@pytest.mark.parametrize("name", ["dgx1-v100", "b200-8-gpu2-off-fabric", "h800-8-shared"])
@pytest.mark.parametrize("write", [yaml.safe_dump, json.dumps])
def test_a_gputopology_as_kubectl_prints_it_is_a_machine(name: str, write: object) -> None:
    spec = graph_to_spec(machine(name), node_uid="u", source="nvml")
    found = {"apiVersion": "kompakt.dev/v1alpha1", "kind": "GPUTopology", "metadata": {"name": "n"}, "spec": spec}
    assert callable(write)
    assert parse_handwritten(write(found)) == machine(name)


def test_a_description_names_the_gpus_of_its_node_itself() -> None:
    one, two = (read_description(graph_to_yaml(machine("rtx8000-4")), node) for node in ("a", "b"))
    assert one.links == two.links == machine("rtx8000-4").links
    assert not {gpu.uuid for gpu in one.gpus} & {gpu.uuid for gpu in two.gpus}
    assert links(read_description("# mine\n---\n" + SHORT, "a")) == links(parse_handwritten(SHORT))


def test_lanes_that_no_gpu_has_go_through_a_switch_as_in_a_matrix() -> None:
    assert links(parse_handwritten("{gpus: 3, links: [{kind: NV18}]}"))[0] == ("NVSwitch", 18, 4, 18 * 26_562)
    assert links(parse_handwritten("{gpus: 4, links: [{kind: NV6}]}"))[0] == ("NVLink", 6, 4, 6 * 26_562), "3 x 6 is an H100's 18"
    assert links(parse_handwritten("{gpus: 2, links: [{kind: NV18}], nvlinkGeneration: 5}"))[0] == ("NVLink", 18, 5, 18 * 53_125)


def test_a_stated_bandwidth_is_taken_as_it_is() -> None:
    graph = parse_handwritten("gpus: 2\nlinks: [{kind: XGMI, gigabytesPerSecond: 48.5, peerAccess: OK, uneven: true}]")
    assert links(graph) == [("XGMI", 1, 0, 48_500)]
    assert (graph.uneven, graph.links[0].peer_access.value) == (((0, 1),), "OK")


def test_one_gpu_needs_no_links_and_two_do() -> None:
    assert parse_handwritten("gpus: 1").links == ()
    assert "line 1, column 1: links: is missing" in refusal(parse_handwritten, "gpus: 2")


def test_about_tells_size_kind_source_and_note() -> None:
    said = about(MACHINES["mi300x-8"].text)
    assert (said.gpus, said.model) == (8, "MI300X")
    assert "PR 53900" in said.source
    assert "64 GB/s is AMD's peak" in said.note


PLACES = [
    ("gpus: four\n", "line 1, column 7: gpus: expected an integer, found a string"),
    ("gpus: 0\n", "line 1, column 7: gpus: must be from 1"),
    ("gpus: 65\n", "line 1, column 7: gpus: 65 GPUs; at most 64 are read"),
    ("gpus: 2\nlink: []\n", "line 2, column 7: link: is no field; known are gpus, model"),
    ("gpus: 2\nlinks:\n- {kind: NV2}\n- {kind: SYS}\n", "line 4, column 3: links[1]: names no pairs; only one entry"),
    ("gpus: 2\nlinks:\n- {kind: NVX}\n", "line 3, column 10: links[0].kind: unknown link 'NVX'; known are NV<lanes>, NVLink"),
    ("gpus: 2\nlinks:\n- {kind: NV37}\n", "links[0].lanes: NV37 with 37 lanes; 1 to 36 are possible"),
    ("gpus: 2\nlinks:\n- {kind: SYS, lanes: 2}\n", "line 3, column 22: links[0].lanes: SYS with 2 lanes; PCIe has none"),
    ("gpus: 2\nlinks:\n- {kind: XGMI}\n", "line 3, column 3: links[0]: no published bandwidth for XGMI: state the link's"),
    ("gpus: 2\nlinks:\n- {kind: SYS, pairs: [0-2]}\n", "line 3, column 23: links[0].pairs[0]: expected two GPUs below 2"),
    ("gpus: 2\nlinks:\n- {kind: SYS, pairs: [0-0]}\n", "expected two GPUs below 2 such as 0-1, found '0-0'"),
    ("gpus: 2\nlinks:\n- {kind: SYS, pairs: [0-1, 1-0]}\n", "line 3, column 3: links[0]: GPUs 0 and 1 are joined by an entry"),
    ("gpus: 3\nlinks:\n- {kind: SYS, pairs: [0-1]}\n", "line 3, column 1: links: nothing joins GPUs 0 and 2; an entry without"),
    ("gpus: 2\nlinks:\n- {kind: SYS, among: [0, 0]}\n", "line 3, column 26: links[0].among[1]: expected a GPU from 0 to 1"),
    ("gpus: 2\nnumaNodes: [0]\n", "line 2, column 12: numaNodes: 1 entries; one for each of the 2 GPUs is due"),
    ("gpus: 2\nnumaNodes: [0, a]\n", "line 2, column 16: numaNodes[1]: expected a number of a NUMA node, found a string"),
    ("gpus: 2\nlinks: [{kind: SYS}]\nnvlinkGeneration: 200\n", "line 3, column 19: nvlinkGeneration: must be from 1 to 99"),
    ("gpus: 2\nlinks: [{kind: SYS, gigabytesPerSecond: fast}]", "column 41: links[0].gigabytesPerSecond: expected a number"),
    ("gpus: 2\nlinks: [{kind: SYS, gigabytesPerSecond: -1}]", "gigabytesPerSecond: must be from 0 to 1000000"),
    ("gpus: 2\nlinks: [{kind: SYS, peerAccess: NO}]", "links[0].peerAccess: must be one of OK, CNS"),
    ("gpus: [{uuid: 5}]\n", "line 1, column 15: gpus[0].uuid: expected a string"),
    ("gpus: [{uuid: a}, {uuid: a}]\nlinks: [{kind: SYS}]", "GPU 1: UUID a appears twice"),
    ("kind: GPUTopology\nspec: {gpus: []}\n", "line 2, column 7: spec.links: is missing"),
    ("gpus: 2\nnics: [{name: a, paths: [PIX]}]\nlinks: [{kind: SYS}]", "NIC a: 1 paths; one for each of the 2 GPUs"),
]


@pytest.mark.parametrize(("text", "sentence"), PLACES)
def test_wrong_descriptions_are_refused_with_their_place(text: str, sentence: str) -> None:
    said = refusal(parse_handwritten, text)
    assert said.startswith("machine description")
    assert sentence in said


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a: [1\nb: 2", "doc, line 2, column 2: no YAML: "),
        ("a: &x 1\n", "line 1, column 4: an anchor (&name) or a tag"),
        ("a: !!python/object:os.system 1\n", "line 1, column 4: an anchor (&name) or a tag"),
        ("a: 1\na: 2\n", "line 2, column 1: the key 'a' appears twice"),
        ("? [a]\n: 1\n", "line 1, column 3: a list or an object as a key"),
        ("a: 1\n---\nb: 2\n", "line 2, column 1: a second document"),
        ("a: \x07\n", "line 1, column 4: the character '\\x07' has no place"),
        ("a: \ud800\n", "line 1, column 4: the character"),
        ("[" * (MAX_DEPTH + 1), f"line 1, column {MAX_DEPTH + 1}: nested deeper than"),
        ("{a: " * 100_000, "nested deeper than"),
        ("x" * (2 << 20), "2097152 characters; at most 1048576 are read"),
    ],
)
def test_yaml_beyond_the_plain_is_refused_with_its_place(text: str, sentence: str) -> None:
    assert sentence in refusal(read_document, text, "doc", "doc")


def test_plain_words_mean_what_json_means_by_them() -> None:
    text = "[no, 'yes', 1:20, 0x10, 2001-99-99, 1_000, 012, 1.5, -3, true, null, ~, '5', NV2, 0-1]"
    meant = ["no", "yes", "1:20", "0x10", "2001-99-99", "1_000", "012", 1.5, -3, True, None, None, "5", "NV2", "0-1"]
    assert read_document(text, "d", "d").value == meant
    assert read_document("", "d", "d").value is None
