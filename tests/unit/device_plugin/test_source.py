"""Reading what a node is said to be."""

import contextlib

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kompakt_core.errors import InvalidInput
from kompakt_device_plugin.source import NamedMachines, TextSource, open_source


def node(machine=None, name="node-1"):
    return {"metadata": {"name": name, "labels": {"kompakt.dev/machine": machine} if machine else None}}


def test_the_label_names_the_file_and_the_file_the_machine(tmp_path):
    (tmp_path / "big").write_text("dgx1-v100\n")
    assert TextSource(tmp_path).read(node("big")).size == 8


def test_a_changed_file_is_read_anew(tmp_path):
    source = TextSource(tmp_path)
    (tmp_path / "big").write_text("dgx1-v100")
    before = source.read(node("big"))
    assert source.read(node("big")) is before
    (tmp_path / "big").write_text("a100-pcie-8-bridge-pairs")
    assert source.read(node("big")).links != before.links


def test_uuids_differ_from_node_to_node(tmp_path):
    (tmp_path / "big").write_text("dgx1-v100")
    source = TextSource(tmp_path)
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


def test_nothing_happens_to_a_text_and_waiting_ends_when_it_is_closed(tmp_path):
    source = TextSource(tmp_path)
    assert source.wait(0.0) == ()
    source.close()
    assert source.wait(1e9) == ()


def test_an_unknown_source_is_refused_with_those_there_are(tmp_path):
    assert isinstance(open_source("text", machines=tmp_path), TextSource)
    with pytest.raises(InvalidInput, match="unknown source 'rocm'; known are text and nvml"):
        open_source("rocm", machines=tmp_path)
