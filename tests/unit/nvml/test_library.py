"""Libraries that are none, are too old, or do not start: one sentence, and another try later."""

import contextlib
import threading

import pynvml
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kompakt_core.errors import InvalidInput
from kompakt_core.topology.graph import LinkKind
from kompakt_device_plugin.nvml import source as module
from kompakt_device_plugin.nvml.discovery import discover
from kompakt_device_plugin.nvml.gpu_health import xid_rules
from kompakt_device_plugin.nvml.library import NEEDED
from kompakt_device_plugin.nvml.source import REFRESH_SECONDS, NvmlSource
from kompakt_device_plugin.source import ChangeKind, open_source
from tests.support.nvml_shim.machine import describe
from tests.support.nvml_shim.node import NODE


@pytest.mark.parametrize(
    ("content", "says"),
    [(None, "cannot open shared object file.*by its path"), ("no library\n" * 100, "(invalid ELF header|file too short)")],
)
def test_a_file_that_is_not_there_or_no_library_is_named(tmp_path, clock, content, says):
    if content:
        (tmp_path / "libnvidia-ml.so.1").write_text(content)
    with pytest.raises(InvalidInput, match=f"cannot load NVML: .*libnvidia-ml.so.1: .*{says}"):
        NvmlSource(tmp_path / "libnvidia-ml.so.1", clock=clock).read(NODE)


@pytest.mark.parametrize("missing", NEEDED)
def test_a_library_that_lacks_what_is_needed_is_refused_with_its_name(reader, compiled, missing):
    source = reader(describe("l40s-4"), library=compiled((missing,)))
    with pytest.raises(InvalidInput, match=f"lacks {missing}: it is no NVML, or that of a driver too old for kompakt"):
        source.read(NODE)


USEFUL = """ModuleId MigMode MemoryAffinity MemoryInfo Name FieldValues GpuFabricInfo GpuFabricInfoV NvLinkVersion
NvLinkRemoteDeviceType"""


def test_what_is_only_useful_may_be_missing(read, compiled):
    old = compiled((*(f"nvmlDeviceGet{name}" for name in USEFUL.split()), "nvmlEventSetWait_v2"))
    graph = read(describe("dgx-a100-8"), library=old)
    assert {link.kind for link in graph.links} == {LinkKind.NVSWITCH}
    known = {(gpu.module_id, gpu.numa_node, gpu.model, gpu.memory_bytes, gpu.health) for gpu in graph.gpus}
    assert known == {(-1, -1, "", 0, "Healthy")}


def failing(function, error):
    described = describe("l40s-4")
    described.fail(function, getattr(pynvml, f"NVML_ERROR_{error}"))
    return described


@pytest.mark.parametrize(
    ("function", "error", "says"),
    [
        ("nvmlInitWithFlags", "DRIVER_NOT_LOADED", "NVML does not start: Driver Not Loaded; is the NVIDIA driver loaded"),
        ("nvmlInitWithFlags", "LIB_RM_VERSION_MISMATCH", "restart the plugin"),  # the driver was replaced under it
        ("nvmlDeviceGetCount_v2", "UNKNOWN", "NVML does not tell how many GPUs there are: Unknown Error"),
    ],
)
def test_a_driver_that_does_not_work_is_one_sentence(reader, function, error, says):
    with pytest.raises(InvalidInput, match=says):
        reader(failing(function, error)).read(NODE)


def test_a_driver_may_come_go_and_come_back_and_each_is_told_once(reader, shim, clock):
    def later(described):
        shim.describe(described)
        clock.now += REFRESH_SECONDS
        return source.wait(0)

    source = reader(failing("nvmlInitWithFlags", "DRIVER_NOT_LOADED"))
    with pytest.raises(InvalidInput, match="does not start"):
        source.read(NODE)
    assert later(failing("nvmlInitWithFlags", "DRIVER_NOT_LOADED")) == ()
    later(describe("l40s-4"))
    assert (source.read(NODE).size, source.driver_version) == (4, "550.90.07")
    (change,) = later(failing("*", "DRIVER_NOT_LOADED"))
    assert (change.kind, change.uuid) == (ChangeKind.LOST, "")
    with pytest.raises(InvalidInput, match="NVML stopped answering: Driver Not Loaded"):
        source.read(NODE)
    shim.forget_calls()
    later(describe("l40s-4"))
    assert source.read(NODE).size == 4
    assert shim.calls("nvmlInitWithFlags") == 1


def test_device_files_are_known_while_nvml_starts_anew_and_not_those_that_it_never_told(reader, shim, clock):
    described = describe("l40s-4")
    for index, gpu in enumerate(described.gpus):
        gpu["minor"] = 3 - index
    source = reader(described)
    first, *_, last = (gpu["uuid"] for gpu in described.gpus)
    with pytest.raises(InvalidInput, match=f"NVML does not tell the device file of {first}"):
        source.minor(first)
    source.read(NODE)
    assert (source.minor(first), source.minor(last)) == (3, 0)
    described.fail("*", pynvml.NVML_ERROR_UNINITIALIZED)
    shim.describe(described)
    assert source.minor(first) == 3


def test_device_files_that_were_not_told_at_the_start_are_asked_for_again(reader, shim, clock):
    described = failing("nvmlDeviceGetMinorNumber", "UNKNOWN")
    source = reader(described)
    source.read(NODE)
    with pytest.raises(InvalidInput, match="does not tell"):
        source.minor(described.gpus[2]["uuid"])
    shim.describe(describe("l40s-4"))
    clock.now += REFRESH_SECONDS
    source.wait(0)
    assert source.minor(described.gpus[2]["uuid"]) == 2


def test_what_is_known_is_answered_while_the_driver_hangs(reader, clock, monkeypatch):
    source = reader(describe("l40s-4"))
    known = source.read(NODE)
    called, release, answers = threading.Event(), threading.Event(), []
    monkeypatch.setattr(module, "discover", lambda *_: called.set() or (release.wait(60) and discover(*_)))
    clock.now += REFRESH_SECONDS
    threads = [
        threading.Thread(target=target, daemon=True)
        for target in (lambda: source.wait(0), lambda: answers.append(source.read(NODE)))
    ]
    try:
        threads[0].start()
        assert called.wait(60)
        threads[1].start()
        threads[1].join(5)
        assert answers == [known]
    finally:
        release.set()
        threads[0].join(60)


def test_a_node_without_gpus_is_an_empty_graph(reader, clock):
    described = describe("l40s-4")
    described.gpus, described.links, described.pairs = [], {}, {}
    assert reader(described).read(NODE).size == 0


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ({"skip_xids": "13, 4x"}, "XIDs to skip: '4x' is no XID; give numbers parted by commas, or all"),
        ({"heed_xids": "-1"}, "XIDs to heed: '-1'"),
        ({"skip_xids": "all", "heed_xids": "79,"}, ""),
    ],
)
def test_xids_are_numbers_or_all(tmp_path, words, says):
    with pytest.raises(InvalidInput, match=says) if says else contextlib.nullcontext():
        assert open_source("nvml", machines=tmp_path, **words).name == "nvml"


@given(st.text(max_size=40), st.text(max_size=40))
def test_no_text_ends_in_anything_but_rules_or_the_error_for_bad_input(skip, heed):
    with contextlib.suppress(InvalidInput):
        xid_rules(skip, heed)
