"""Which GPUs a node's CDI specifications name, and which runtimes go by them."""

import json
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kompakt_device_plugin import cdi as module
from kompakt_device_plugin.cdi import CdiSpecifications, takes_cdi
from tests.support.device_plugin.specifications import spec


@pytest.mark.parametrize(
    ("runtime", "takes"),
    [
        ("containerd://2.0.0", True),
        ("containerd://v2.1.4-k3s1", True),
        ("containerd://1.6.20~ds1", False),
        ("cri-o://1.37.0", True),
        ("cri-o://1.22.5", False),
        ("docker://27.0.1", False),
        ("containerd://two", False),
    ],
)
def test_which_runtimes_take_cdi_devices(runtime, takes):
    assert takes_cdi(runtime) is takes


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[1]", b"\xff", b"devices: {a: b}", b"a: &a [*a]", b"kind: nvidia.com/gpu\ndevices: [3, {name: 4}]"]
)
def test_broken_specifications_are_passed_over(tmp_path, content):
    (tmp_path / "a.yaml").write_bytes(content)
    (tmp_path / "b.json").write_bytes(content)
    (tmp_path / "c.json").write_text(json.dumps(spec("GPU-b")))
    (tmp_path / "d.json").write_text(json.dumps(spec("GPU-x", kind="amd.com/gpu")))
    (tmp_path / "e.txt").write_text("nothing")
    (tmp_path / "f.yaml").mkdir()
    assert CdiSpecifications([tmp_path, tmp_path / "nowhere"]).names() == {"GPU-b": "nvidia.com/gpu=GPU-b"}


@given(st.text(max_size=40))
def test_any_word_for_a_runtime_is_judged(runtime):
    assert takes_cdi(runtime) in (True, False)


@pytest.fixture
def parsed(monkeypatch):
    """The names of all files that were parsed."""
    seen, parse = [], module._devices_in
    monkeypatch.setattr(module, "_devices_in", lambda file: seen.append(file.name) or parse(file))
    return seen


def test_a_file_is_parsed_again_only_when_it_has_changed(tmp_path, parsed):
    first, second = tmp_path / "a.json", tmp_path / "b.json"
    first.write_text(json.dumps(spec("GPU-a")))
    second.write_text(json.dumps(spec("GPU-b")))
    read = CdiSpecifications([tmp_path])
    assert [read.names() for _ in range(3)] == [{"GPU-a": "nvidia.com/gpu=GPU-a", "GPU-b": "nvidia.com/gpu=GPU-b"}] * 3
    assert parsed == ["a.json", "b.json"]
    second.write_text(json.dumps(spec("GPU-c")))
    os.utime(second, ns=(0, 0))
    assert set(read.names()) == {"GPU-a", "GPU-c"}
    assert parsed == ["a.json", "b.json", "b.json"]
    first.unlink()
    assert set(read.names()) == {"GPU-c"}
