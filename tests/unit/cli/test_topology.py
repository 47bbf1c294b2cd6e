"""`kompakt topology`: the picture in the terminal and as SVG, and the forms for programs."""

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

from kompakt_cli import main
from kompakt_cli.legend import alike, classes, facts, ranges
from kompakt_cli.svg import svg
from kompakt_core.errors import InvalidInput
from kompakt_core.topology.handwritten import parse_handwritten
from kompakt_core.topology.machines import MACHINES, machine
from kompakt_core.topology.wire import graph_from_spec, graph_to_spec

SPACE = "{http://www.w3.org/2000/svg}"


def run(*words: str, stdin: str = "") -> Result:
    return CliRunner(env={"COLUMNS": "80"}).invoke(main.application(), ["topology", *words], input=stdin)


def words_of(drawing: str) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(drawing).iter(f"{SPACE}text")]


def test_the_terminal_shows_links_numa_nodes_cards_and_where_it_all_comes_from() -> None:
    out = run("h800-8").output
    assert "NUMA node 0: GPU 0-3, NUMA node 1: GPU 4-7" in out
    assert "NIC4, NUMA node 0, PIX to GPU 1" in out
    assert "source: NVIDIA/nccl issue 933" in out
    assert "remark: GPU model inferred from NV8" in out


def test_the_terminal_says_what_is_broken() -> None:
    assert "broken: GPU 2: no fabric link although the others have theirs" in run("b200-8-gpu2-off-fabric").output


def test_more_gpus_than_fit_are_folded_by_equal_links() -> None:
    out = run("mi300x-8-cpx", "--held", "8-11").output
    assert "8-11   A  XG 662.5: 9-15  XG 64.0: 0-7,16-63" in out
    assert "12-15  .  XG 662.5: 8-11,13-15  XG 64.0: 0-7,16-63" in out
    assert "relative figure" in " ".join(out.split())


@pytest.mark.parametrize("words", [["dgx1-v100"], ["--machine", "dgx1-v100"]])
def test_a_machine_is_named_in_either_way(words: list[str]) -> None:
    assert "GB/s one way: NV2 50.0  NV1 25.0  SYS 6.0" in run(*words).output


def test_a_file_a_yaml_and_an_object_from_kubectl_are_machines_too(tmp_path: Path) -> None:
    path = tmp_path / "mine.txt"
    for text in (MACHINES["l40s-4"].text, run("l40s-4", "-o", "yaml").output):
        path.write_text(text)
        assert "NODE 10.0  SYS 6.0" in run("--matrix", str(path)).output
    spec = graph_to_spec(machine("summit-6"), node_uid="u", source="nvml")
    found = {"apiVersion": "kompakt.dev/v1alpha1", "kind": "GPUTopology", "spec": spec}
    assert "NV2 50.0  SYS 32.0" in run("-", stdin=json.dumps(found)).output


@pytest.mark.parametrize("words", [[], ["dgx1-v100", "--machine", "l40s-4"], ["--matrix", "a", "--machine", "b"]])
def test_not_exactly_one_machine_is_refused(words: list[str]) -> None:
    error = run(*words).exception
    assert isinstance(error, InvalidInput)
    assert str(error) == "name one machine: NAME, --machine NAME or --matrix FILE"


@pytest.mark.parametrize("name", sorted(MACHINES))
def test_forms_for_programs_are_the_same_machine(name: str) -> None:
    graph = machine(name)
    assert parse_handwritten(run(name, "-o", "yaml").output).links == graph.links
    assert graph_from_spec(json.loads(run(name, "-o", "JSON").output)).links == graph.links


@pytest.mark.parametrize("name", sorted(MACHINES))
def test_every_drawing_is_one_plain_file_that_names_every_gpu_and_every_kind_of_link(name: str) -> None:
    graph = machine(name)
    drawing = run(name, "-o", "svg").output
    words = words_of(drawing)
    groups = [(i,) for i in range(graph.size)] if graph.size <= 16 else alike(graph, {})
    assert words[0] == name
    assert [ranges(group) for group in groups] == sorted(set(words) & {ranges(group) for group in groups}, key=_first)
    for entry in classes(graph).values():
        line = f": {entry.megabytes_per_second / 1000:.1f} ({entry.pairs} pair"
        assert sum(line in word for word in words) >= 1
    nodes = {gpu.numa_node for gpu in graph.gpus if gpu.numa_node >= 0}
    assert {f"NUMA {node}" for node in nodes} <= set(words)
    assert not [word for word in ("<script", "href", "url(", "@import", "nan") if word in drawing]
    assert all(0 <= float(x.get("x", 0)) <= 1040 for x in ElementTree.fromstring(drawing).iter())


def _first(text: str) -> int:
    return int(text.split("-")[0].split(",")[0])


def test_links_through_switches_are_spokes_of_a_hub_and_others_are_lines() -> None:
    def lines(name: str) -> list[str]:
        drawing = ElementTree.fromstring(svg(machine(name), name))
        return [title.text or "" for line in drawing.iter(f"{SPACE}line") for title in line.iter(f"{SPACE}title")]

    assert lines("dgx2-16xv100") == [f"GPU {i}: 6 lanes to the NVSwitches" for i in range(16)]
    assert len(lines("dgx1-v100")) == 28
    assert "GPU 0 - GPU 4: NV2, 50.0 GB/s" in lines("dgx1-v100")
    assert "NVSwitch" not in words_of(svg(machine("dgx1-v100"), "x"))
    assert len(lines("b200-8-gpu2-off-fabric")) == 7 + 7, "seven on the hub, one with a way to each of them"


def test_holders_are_named_in_their_colour_and_broken_gpus_are_ringed_in_red() -> None:
    drawing = svg(machine("b200-8-gpu2-off-fabric"), "m", {0: "left <&>", 1: "left <&>", 5: "right"})
    words = words_of(drawing)
    assert {"left <&>: GPU 0-1", "right: GPU 5"} <= set(words)
    circles = [circle for circle in ElementTree.fromstring(drawing).iter(f"{SPACE}circle") if circle.get("r") == "26"]
    assert [circle.get("stroke") == "#e03131" for circle in circles] == [i == 2 for i in range(8)]
    assert [circle.get("fill") for circle in circles][:2] == ["#f59f00"] * 2


@given(st.text(max_size=30))
@settings(max_examples=50, deadline=None)
def test_any_title_and_holder_leave_the_drawing_well_formed(text: str) -> None:
    graph = machine("rtx-2-ns")
    ElementTree.fromstring(svg(graph, text, {0: text}, [text]))


def test_one_gpu_is_drawn_and_partitions_are_told() -> None:
    alone = parse_handwritten("gpus: 1")
    assert "0" in words_of(svg(alone, "one"))
    (line,) = [line for line in facts(machine("h800-8-shared")) if line.startswith("partitions")]
    assert line.startswith("partitions, each handed out whole or not at all: GPU (0-7), (0-3), (4-7), (0-1), (2-3)")


def test_the_page_shows_what_is_read_and_printed(tmp_path: Path) -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "placement.md").read_text()
    text = page.split("```yaml\n")[1].split("```")[0]
    shown = page.split("$ kompakt topology --matrix two-bridges.yaml\n")[1].split("```")[0]
    path = tmp_path / "two-bridges.yaml"
    path.write_text(text)
    assert [line.rstrip() for line in run("--matrix", str(path)).output.splitlines()] == shown.splitlines()
    path.write_text(text.replace("2-3", "2-4"))
    sentence = str(run("--matrix", str(path)).exception)
    assert sentence in " ".join(page.split())
    drawing = Path(__file__).resolve().parents[3] / "docs" / "pictures" / "dgx1-v100.svg"
    assert drawing.read_text() == run("dgx1-v100", "-o", "svg").output
