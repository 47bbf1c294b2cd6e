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


def test_a_library_that_is_not_there_is_named(tmp_path, clock):
    source = NvmlSource(tmp_path / "libnvidia-ml.so.1", clock=clock)
    with pytest.raises(InvalidInput, match=r"cannot load NVML: .*libnvidia-ml.so.1: cannot open shared object file.*by its path"):
        source.read(NODE)


def test_a_file_that_is_no_library_is_named(tmp_path, clock):
    (tmp_path / "text").write_text("no library\n" * 100)
    with pytest.raises(InvalidInput, match=r"cannot load NVML: .*text: .*(invalid ELF header|file too short)"):
        NvmlSource(tmp_path / "text", clock=clock).read(NODE)


@pytest.mark.parametrize("missing", NEEDED)
def test_a_library_that_lacks_what_is_needed_is_refused_with_its_name(reader, compiled, missing):
    source = reader(describe("l40s-4"), library=compiled((missing,)))
    with pytest.raises(InvalidInput, match=f"lacks {missing}: it is no NVML, or that of a driver too old for kompakt"):
        source.read(NODE)


def test_what_is_only_useful_may_be_missing(read, compiled):
    old = compiled(
        (
            "nvmlDeviceGetModuleId",
            "nvmlDeviceGetMigMode",
            "nvmlDeviceGetMemoryAffinity",
            "nvmlDeviceGetMemoryInfo",
            "nvmlDeviceGetName",
            "nvmlDeviceGetFieldValues",
            "nvmlDeviceGetGpuFabricInfo",
            "nvmlDeviceGetGpuFabricInfoV",
            "nvmlDeviceGetNvLinkVersion",
            "nvmlDeviceGetNvLinkRemoteDeviceType",
            "nvmlEventSetWait_v2",
        )
    )
    graph = read(describe("dgx-a100-8"), library=old)
    assert {link.kind for link in graph.links} == {LinkKind.NVSWITCH}
    assert {(gpu.module_id, gpu.numa_node, gpu.model, gpu.memory_bytes, gpu.health) for gpu in graph.gpus} == {
        (-1, -1, "", 0, "Healthy")
    }


def test_a_driver_that_comes_later_is_found_and_what_failed_is_told_once(reader, clock):
    described = describe("l40s-4")
    described.fail("nvmlInitWithFlags", pynvml.NVML_ERROR_DRIVER_NOT_LOADED)
    source = reader(described)
    with pytest.raises(InvalidInput, match="NVML does not start: Driver Not Loaded; is the NVIDIA driver loaded"):
        source.read(NODE)
    clock.now += REFRESH_SECONDS
    assert source.wait(0) == ()
    reader(describe("l40s-4"))
    clock.now += REFRESH_SECONDS
    source.wait(0)
    assert source.read(NODE).size == 4
    assert source.driver_version == "550.90.07"


def test_a_driver_replaced_under_the_plugin_asks_for_a_restart(reader):
    described = describe("l40s-4")
    described.fail("nvmlInitWithFlags", pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH)
    with pytest.raises(InvalidInput, match="restart the plugin"):
        reader(described).read(NODE)


def test_a_driver_that_goes_away_is_told_as_a_change_and_read_raises_until_it_is_back(reader, shim, clock):
    source = reader(describe("l40s-4"))
    source.read(NODE)
    described = describe("l40s-4")
    described.fail("*", pynvml.NVML_ERROR_DRIVER_NOT_LOADED)
    reader(described)
    clock.now += REFRESH_SECONDS
    (change,) = source.wait(0)
    assert (change.kind, change.uuid) == (ChangeKind.LOST, "")
    with pytest.raises(InvalidInput, match="NVML stopped answering: Driver Not Loaded"):
        source.read(NODE)
    shim.describe(describe("l40s-4"))
    shim.forget_calls()
    clock.now += REFRESH_SECONDS
    source.wait(0)
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
    described = describe("l40s-4")
    described.fail("nvmlDeviceGetMinorNumber", pynvml.NVML_ERROR_UNKNOWN)
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


def test_an_unexpected_error_about_the_count_is_one_sentence(reader):
    described = describe("l40s-4")
    described.fail("nvmlDeviceGetCount_v2", pynvml.NVML_ERROR_UNKNOWN)
    with pytest.raises(InvalidInput, match="NVML does not tell how many GPUs there are: Unknown Error"):
        reader(described).read(NODE)


def test_a_node_without_gpus_is_an_empty_graph(reader, clock):
    described = describe("l40s-4")
    described.gpus, described.links, described.pairs = [], {}, {}
    assert reader(described).read(NODE).size == 0


def test_xids_are_numbers_or_all(tmp_path):
    with pytest.raises(InvalidInput, match="XIDs to skip: '4x' is no XID; give numbers parted by commas, or all"):
        open_source("nvml", machines=tmp_path, skip_xids="13, 4x")
    with pytest.raises(InvalidInput, match="XIDs to heed: '-1'"):
        open_source("nvml", machines=tmp_path, heed_xids="-1")
    assert open_source("nvml", machines=tmp_path, skip_xids="all", heed_xids="79,").name == "nvml"


@given(st.text(max_size=40), st.text(max_size=40))
def test_no_text_ends_in_anything_but_rules_or_the_error_for_bad_input(skip, heed):
    with contextlib.suppress(InvalidInput):
        xid_rules(skip, heed)
