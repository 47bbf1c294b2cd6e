"""What makes a GPU unhealthy, what does not, and what makes it well again."""

import threading
import time

import pynvml
import pytest

from kompakt_core.topology.flags import Flag, remarks
from kompakt_core.topology.graph import HEALTHY, UNHEALTHY
from kompakt_device_plugin.nvml.gpu_health import APPLICATION_XIDS, QUIET_SECONDS, xid_rules
from kompakt_device_plugin.nvml.source import REFRESH_SECONDS, SETTLE_SECONDS
from kompakt_device_plugin.source import Change, ChangeKind
from tests.support.nvml_shim.machine import describe
from tests.support.nvml_shim.node import NODE

pytestmark = pytest.mark.timeout(60)  # who waits in vain waits for ever: time stands still
XID, ECC = pynvml.nvmlEventTypeXidCriticalError, pynvml.nvmlEventTypeDoubleBitEccError
NONE, RESET = pynvml.NVML_GPU_RECOVERY_ACTION_NONE, pynvml.NVML_GPU_RECOVERY_ACTION_GPU_RESET


def health(source, gpu):
    found = source.read(NODE).gpus[gpu]
    return found.health, found.health_reason, found.xid


@pytest.fixture
def started(reader):
    def start(described, **options):
        source = reader(described, **options)
        source.wait(0)
        return source

    return start


def test_an_xid_makes_its_gpu_unhealthy_at_once_and_no_other(started, shim):
    described = describe("dgx-a100-8")
    source = started(described)
    shim.event(5, XID, 79)
    (change,) = source.wait(1)
    uuid = described.gpus[5]["uuid"]
    assert change == Change(ChangeKind.XID, uuid, f"GPU {uuid} reported XID 79", 79)
    assert health(source, 5) == (UNHEALTHY, "XID", 79)
    assert [health(source, i)[0] for i in range(8)].count(HEALTHY) == 7
    assert "GPU 5 (XID, XID 79)" in remarks(source.read(NODE))[0].sentence


@pytest.mark.parametrize("xid", [13, 31, 43, 45, 68, 109])  # those that NVIDIA's plugin leaves alone (internal/rm/health.go)
def test_an_xid_of_the_application_changes_nothing(started, shim, clock, xid):
    source = started(describe("dgx-a100-8"))
    shim.event(5, XID, xid)
    clock.step = 0.99
    assert source.wait(1) == ()
    assert health(source, 5) == (HEALTHY, "", 0)


def test_every_other_xid_counts():
    assert [xid for xid in range(200) if not xid_rules().counts(xid)] == sorted(APPLICATION_XIDS)
    assert len(APPLICATION_XIDS) == 6


def test_waiting_in_vain_asks_nothing(started, shim, clock):
    source = started(describe("dgx-a100-8"))
    shim.forget_calls()
    clock.step = 0.99
    assert source.wait(1) == ()
    assert shim.calls() == shim.calls("nvmlEventSetWait_v2") > 0


def test_which_xids_count_can_be_told():
    assert not xid_rules("79").counts(79)
    assert not xid_rules("79").counts(13)
    assert xid_rules("", "13").counts(13)
    assert xid_rules("", "all").counts(13)
    assert not xid_rules("all").counts(79)
    assert xid_rules("all", "79").counts(79)
    assert not xid_rules("all", "79").counts(48)


def test_skipped_xids_reach_the_source(started, shim):
    source = started(describe("dgx-a100-8"), rules=xid_rules("79"))
    shim.event(1, XID, 79)
    shim.event(2, XID, 48)
    (change,) = source.wait(1)
    assert change.xid == 48


def test_memory_that_cannot_be_corrected_makes_a_gpu_unhealthy(started, shim):
    source = started(describe("dgx-a100-8"))
    shim.event(3, ECC)
    (change,) = source.wait(1)
    assert change.kind is ChangeKind.ECC
    assert health(source, 3) == (UNHEALTHY, "ECC", 0)
    assert remarks(source.read(NODE))[0].flag is Flag.ECC


def test_rows_that_cannot_be_remapped_make_it_so_without_any_event(started):
    described = describe("dgx-a100-8")
    described.gpus[3]["failed"] = 1
    described.gpus[4]["pending"] = 1  # waits for the next reset, works meanwhile
    source = started(described)
    assert health(source, 3) == (UNHEALTHY, "ECC", 0)
    assert health(source, 4)[0] == HEALTHY


@pytest.mark.parametrize("name", ["GPU_RESET", "NODE_REBOOT", "DRAIN_P2P", "DRAIN_AND_RESET", "BUS_RESET", "SYSTEM_REBOOT"])
def test_a_gpu_that_the_driver_wants_reset_is_not_offered(started, name):
    described = describe("gb200-tray-4")
    described.gpus[1]["recovery"] = getattr(pynvml, f"NVML_GPU_RECOVERY_ACTION_{name}")
    assert health(started(described), 1) == (UNHEALTHY, "ResetRequired", 0)


def test_an_imex_domain_to_be_repaired_is_no_fault_of_the_gpu(started):
    described = describe("gb200-tray-4")
    described.gpus[1]["recovery"] = pynvml.NVML_GPU_RECOVERY_ACTION_RECOVER_IMEX_DOMAIN
    assert health(started(described), 1)[0] == HEALTHY


def test_a_lost_gpu_keeps_its_place_and_links_and_leaves_the_others_alone(started, shim, clock):
    described = describe("dgx1-v100")
    source = started(described)
    before = source.read(NODE)
    described.lose(6)
    shim.describe(described)
    clock.now += REFRESH_SECONDS
    (change,) = source.wait(0)
    assert (change.kind, change.uuid) == (ChangeKind.LOST, described.gpus[6]["uuid"])
    after = source.read(NODE)
    assert after.links == before.links
    assert health(source, 6) == (UNHEALTHY, "LostGPU", 0)
    assert {remark.flag for remark in remarks(after)} == {Flag.LOST_GPU}


def test_a_gpu_that_still_tells_where_it_is_keeps_what_was_known_of_it_whatever_its_number(started, shim, clock):
    described = describe("l40s-4")
    source = started(described)
    first, last = described.gpus[0]["uuid"], described.gpus[3]["uuid"]
    described.gpus[0], described.gpus[3] = described.gpus[3], described.gpus[0]
    described.fail("nvmlDeviceGetUUID", pynvml.NVML_ERROR_UNKNOWN, gpu=0)
    shim.describe(described)
    clock.now += REFRESH_SECONDS
    source.wait(0)
    assert [gpu.uuid for gpu in source.read(NODE).gpus][::3] == [last, first]


def test_a_lost_gpu_that_answers_again_is_well_and_its_xid_forgotten(started, shim, clock):
    described = describe("dgx1-v100")
    source = started(described)
    shim.event(6, XID, 79)
    source.wait(1)
    described.lose(6)
    shim.describe(described)
    clock.now += SETTLE_SECONDS
    assert [change.kind for change in source.wait(0)] == [ChangeKind.LOST]
    described.fails.clear()
    shim.describe(described)
    shim.forget_calls()
    clock.now += REFRESH_SECONDS
    assert [change.kind for change in source.wait(0)] == [ChangeKind.WELL]
    assert health(source, 6) == (HEALTHY, "", 0)
    assert shim.calls("nvmlInitWithFlags") == 1
    shim.event(6, XID, 48)  # NVML was started anew and listens again
    assert [change.xid for change in source.wait(1)] == [48]


def test_a_gpu_lost_before_the_first_look_stands_in_the_list_under_a_made_up_name(started):
    described = describe("dgx-a100-8")
    described.lose(2)
    source = started(described)
    graph = source.read(NODE)
    assert graph.size == 8
    assert (graph.gpus[2].uuid, graph.gpus[2].health_reason) == ("GPU-lost-2", "LostGPU")
    assert graph.link(0, 1).lanes == 12


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        ("nvmlDeviceGetHandleByIndex_v2", "LostGPU"),
        ("nvmlDeviceGetPciInfo_v3", "LostGPU"),
        ("nvmlDeviceGetUUID", "Unreadable"),
        ("nvmlDeviceGetName", "Unreadable"),
        ("nvmlDeviceGetFieldValues", "Unreadable"),
        ("nvmlDeviceGetGpuFabricInfoV", "Unreadable"),
    ],
)
def test_one_gpu_with_unexplained_errors_does_not_hide_the_others(started, function, reason):
    described = describe("hgx-h100-8")
    described.fail(function, pynvml.NVML_ERROR_UNKNOWN, gpu=4)
    source = started(described)
    assert health(source, 4)[:2] == (UNHEALTHY, reason)
    assert [health(source, i)[0] for i in range(8)].count(HEALTHY) == 7


def test_a_gpu_that_goes_silent_between_two_questions_breaks_nothing(started):
    described = describe("hgx-h100-8")
    described.fail("nvmlDeviceGetTopologyCommonAncestor", pynvml.NVML_ERROR_GPU_IS_LOST, gpu=4)
    assert started(described).read(NODE).size == 8


def test_a_fault_is_over_when_the_driver_has_asked_for_nothing_for_long_enough(started, shim, clock):
    described = describe("gb200-tray-4")
    source = started(described)
    shim.event(1, XID, 62)
    source.wait(1)
    clock.now += QUIET_SECONDS - 1
    assert source.wait(0) == ()
    assert health(source, 1)[0] == UNHEALTHY
    described.gpus[1]["recovery"] = RESET
    shim.describe(described)
    clock.now += REFRESH_SECONDS
    source.wait(0)
    assert health(source, 1)[0] == UNHEALTHY
    described.gpus[1]["recovery"] = NONE
    shim.describe(described)
    clock.now += REFRESH_SECONDS
    assert [change.kind for change in source.wait(0)] == [ChangeKind.WELL]


def test_a_fault_is_not_over_while_rows_of_memory_wait_for_a_reset(started, shim, clock):
    described = describe("gb200-tray-4")
    described.gpus[1]["pending"] = 1
    source = started(described)
    shim.event(1, ECC)
    source.wait(1)
    clock.now += 2 * QUIET_SECONDS
    assert source.wait(0) == ()
    assert health(source, 1) == (UNHEALTHY, "ECC", 0)


def test_a_gpu_that_has_not_come_back_keeps_its_fault(started, shim, clock):
    described = describe("gb200-tray-4")
    source = started(described)
    shim.event(1, XID, 79)
    source.wait(1)
    described.lose(1)
    shim.describe(described)
    for _ in range(3):
        clock.now += 2 * QUIET_SECONDS
        source.wait(0)
    assert health(source, 1) == (UNHEALTHY, "LostGPU", 79)


def test_a_driver_that_cannot_be_asked_leaves_a_fault_standing(started, shim, clock):
    source = started(describe("dgx-a100-8"))
    shim.event(1, XID, 62)
    source.wait(1)
    clock.now += 100 * QUIET_SECONDS
    assert source.wait(0) == ()
    assert health(source, 1) == (UNHEALTHY, "XID", 62)


def test_an_event_is_followed_by_a_second_look_when_the_driver_has_settled(started, shim, clock):
    described = describe("gb200-tray-4")
    source = started(described)
    shim.event(1, XID, 95)
    source.wait(1)
    described.gpus[2]["recovery"] = RESET  # the driver found out meanwhile that another one suffered too
    shim.describe(described)
    clock.now += SETTLE_SECONDS
    assert [change.uuid for change in source.wait(0)] == [described.gpus[2]["uuid"]]


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("ROUTE_UNHEALTHY", "TRUE", (UNHEALTHY, "FabricRoute", 0)),
        ("ROUTE_UNHEALTHY", "FALSE", (HEALTHY, "", 0)),
        ("DEGRADED_BW", "TRUE", (HEALTHY, "FabricBandwidth", 0)),
        ("INCORRECT_CONFIGURATION", "NONE", (HEALTHY, "", 0)),
        ("INCORRECT_CONFIGURATION", "INSUFFICIENT_NVLINKS", (HEALTHY, "FabricConfiguration", 0)),
    ],
)
def test_the_health_of_the_fabric(started, shim, clock, name, value, expected):
    described = describe("gb200-tray-4")
    source = started(described)
    prefix = "NVML_GPU_FABRIC_HEALTH_MASK"
    described.fabrics[1]["mask"] = getattr(pynvml, f"{prefix}_{name}_{value}") << getattr(pynvml, f"{prefix}_SHIFT_{name}")
    shim.describe(described)
    clock.now += REFRESH_SECONDS
    assert all(change.kind is ChangeKind.FABRIC for change in source.wait(0))
    assert health(source, 1) == expected


def test_a_gpu_that_leaves_the_fabric_is_told_with_the_links_it_loses(started, shim, clock):
    described = describe("gb200-tray-4")
    source = started(described)
    described.fabrics[1]["state"] = pynvml.NVML_GPU_FABRIC_STATE_IN_PROGRESS
    shim.describe(described)
    clock.now += REFRESH_SECONDS
    assert [change.kind for change in source.wait(0)] == [ChangeKind.FABRIC, ChangeKind.LINKS]
    assert Flag.OFF_FABRIC in {remark.flag for remark in remarks(source.read(NODE))}


def test_gpus_without_events_are_still_looked_at(started, shim, clock):
    described = describe("dgx-a100-8")
    described.fail("nvmlDeviceGetSupportedEventTypes", pynvml.NVML_ERROR_NOT_SUPPORTED, gpu=1)
    source = started(described)
    assert health(source, 1)[0] == HEALTHY
    described.gpus[1]["failed"] = 1
    shim.describe(described)
    clock.now += REFRESH_SECONDS
    assert [change.kind for change in source.wait(0)] == [ChangeKind.ECC]
    shim.event(2, XID, 79)  # and the others are still heard
    assert [change.xid for change in source.wait(1)] == [79]


def test_events_that_cannot_be_had_at_all_leave_the_slow_look(started, shim, clock):
    described = describe("dgx-a100-8")
    described.fail("nvmlEventSetCreate", pynvml.NVML_ERROR_UNKNOWN)
    source = started(described)
    described.gpus[1]["failed"] = 1
    shim.describe(described)
    clock.now += REFRESH_SECONDS
    assert [change.kind for change in source.wait(0)] == [ChangeKind.ECC]


def test_an_event_whose_gpu_cannot_tell_its_name_leads_to_a_look_at_all(started, shim):
    described = describe("dgx-a100-8")
    source = started(described)
    described.lose(7)
    shim.describe(described)
    shim.event(7, XID, 79)
    (change,) = source.wait(1)
    assert (change.kind, change.uuid) == (ChangeKind.LOST, described.gpus[7]["uuid"])


def test_closing_ends_a_wait(started, monkeypatch):
    source = started(describe("l40s-4"))
    listens, listen = threading.Event(), source._listen
    monkeypatch.setattr(source, "_listen", lambda seconds: listens.set() or listen(seconds))
    closing = threading.Thread(target=lambda: listens.wait() and source.close())
    closing.start()
    began = time.monotonic()
    assert source.wait(1e6) == ()
    closing.join()
    assert time.monotonic() - began < 1.5
    assert source.wait(1e6) == ()


def test_a_gpu_with_processes_is_busy(started, shim):
    described = describe("l40s-4")
    source = started(described)
    uuid = described.gpus[2]["uuid"]
    assert not source.busy(uuid)
    shim.busy(2, 3)
    assert source.busy(uuid)
    shim.busy(2, 0)
    assert not source.busy("GPU-of-another-node")
