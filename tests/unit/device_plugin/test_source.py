"""Reading what a node is said to be, and which sources there are."""

import contextlib
import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kompakt_core.errors import InvalidInput
from kompakt_device_plugin.source import SOURCES, NamedMachines, TextSource, open_source

SCHEMA = Path(__file__).parents[3] / "charts/kompakt/values.schema.json"
QUESTIONS = ("read", "wait", "busy", "minor", "close")


def node(machine=None, name="node-1"):
    return {"metadata": {"name": name, "labels": {"kompakt.dev/machine": machine} if machine else None}}


@pytest.fixture
def source(tmp_path):
    (tmp_path / "big").write_text("dgx1-v100\n")
    return TextSource(tmp_path)


def test_the_label_names_the_file_which_is_read_anew_when_it_changes(source, tmp_path):
    before = source.read(node("big"))
    assert before.size == 8
    assert source.read(node("big")) is before
    (tmp_path / "big").write_text("a100-pcie-8-bridge-pairs")
    assert source.read(node("big")).links != before.links


def test_uuids_differ_from_node_to_node(source):
    one, two = (source.read(node("big", name)) for name in ("node-1", "node-2"))
    assert not {gpu.uuid for gpu in one.gpus} & {gpu.uuid for gpu in two.gpus}


@pytest.mark.parametrize(
    ("machine", "text", "says"),
    [
        (None, "", "has no label kompakt.dev/machine"),
        ("absent", "", "no description 'absent'"),
        ("../etc", "", "is no file name"),
        ("bad", "dgx-999", "unknown machine 'dgx-999'"),
        ("bad", "", "empty description"),
        ("bad", "\tGPU0\nGPU0\tWHAT\n", "WHAT"),
        ("bad", b"\xff\xfe", "cannot read"),
        ("bad", b"x" * ((1 << 20) + 1), "larger than"),
    ],
)
def test_what_is_wrong_is_said(tmp_path, machine, text, says):
    (tmp_path / "bad").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(InvalidInput, match=says.replace("/", ".")):
        TextSource(tmp_path).read(node(machine))


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=300))
def test_no_content_ends_in_anything_but_a_graph_or_the_error_for_bad_input(tmp_path, content):
    (tmp_path / "any").write_bytes(content)
    with contextlib.suppress(InvalidInput):
        TextSource(tmp_path).read(node("any"))


def test_simulated_nodes_are_named_after_machines_or_described_in_a_folder(tmp_path):
    (tmp_path / "own").write_text("dgx1-v100")
    assert NamedMachines().read(node("dgx1-v100")).size == 8
    assert NamedMachines(tmp_path).read(node("own")).size == 8
    with pytest.raises(InvalidInput):
        NamedMachines(tmp_path).read(node())


@pytest.mark.parametrize("name", SOURCES)
def test_every_source_that_can_be_named_can_be_opened_and_closed(name, tmp_path):
    source = open_source(name, machines=tmp_path)
    try:
        assert source.name == name
        assert [question for question in QUESTIONS if not callable(getattr(source, question, None))] == []
        assert name != "text" or source.wait(0.0) == (), "nothing happens to a text"
    finally:
        source.close()
    assert source.wait(1e9) == ()


def test_the_chart_takes_the_sources_that_the_program_knows_and_others_are_refused(tmp_path):
    values = json.loads(SCHEMA.read_text())
    assert values["properties"]["devicePlugin"]["properties"]["source"]["enum"] == list(SOURCES)
    with pytest.raises(InvalidInput, match="unknown source 'rocm'; known are text and nvml"):
        open_source("rocm", machines=tmp_path)
