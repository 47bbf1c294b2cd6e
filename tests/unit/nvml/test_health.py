"""What makes a GPU unhealthy, what does not, and what makes it well again."""

import threading
import time

import pynvml
import pytest

from kompakt_core.topology.flags import Flag, remarks
from kompakt_core.topology.graph import HEALTHY, UNHEALTHY
from kompakt_device_plugin.nvml.gpu_health import APPLICATION_XIDS, QUIET_SECONDS, xid_rules
from kompakt_device_plugin.nvml.source import REFRESH_SECONDS, SETTLE_SECONDS
from kompakt_device_plugin.source import ChangeKind
from tests.support.nvml_shim.machine import describe
from tests.support.nvml_shim.node import NODE

pytestmark = pytest.mark.timeout(60)  # who waits in vain waits for ever: time stands still
XID, ECC = pynvml.nvmlEventTypeXidCriticalError, pynvml.nvmlEventTypeDoubleBitEccError


class Watched:
    """A described machine and the source that watches it."""

    def __init__(self, described, source, shim, clock):
        self.described, self.source, self.gpus, self._shim, self._clock = described, source, described.gpus, shim, clock
        source.wait(0)

    def hears(self, gpu, kind, xid=0):
        """What the source tells of an event of this GPU."""
        self._shim.event(gpu, kind, xid)
        return self.source.wait(1)

    def after(self, seconds=REFRESH_SECONDS):
        """What it tells after so long, of the machine as it is described by now."""
        self._shim.describe(self.described)
        self._clock.now += seconds
        return self.source.wait(0)

    def kinds_after(self, seconds=REFRESH_SECONDS):
        return [change.kind for change in self.after(seconds)]

    def read(self):
        return self.source.read(NODE)

    def health(self, gpu):
        found = self.read().gpus[gpu]
        return found.health, found.health_reason, found.xid

    def well(self):
        return [gpu.index for gpu in self.read().gpus if gpu.health == HEALTHY]


@pytest.fixture
def watch(reader, shim, clock):
    def make(machine, change=lambda described: None, **options):
        described = describe(machine)
        change(described)
        return Watched(described, reader(described, **options), shim, clock)

    return make


@pytest.mark.parametrize(
    ("event", "told", "health", "says"),
    [
        pytest.param((XID, 79), ChangeKind.XID, ("XID", 79), "GPU 5 (XID, XID 79)", id="an XID"),
        pytest.param((ECC,), ChangeKind.ECC, ("ECC", 0), "GPU 5 (ECC)", id="memory that cannot be corrected"),
    ],
)
def test_a_gpu_is_made_unhealthy_at_once_and_no_other_by(watch, event, told, health, says):
    node = watch("dgx-a100-8")
    ((change),) = node.hears(5, *event)
    assert (change.kind, change.uuid, change.xid) == (told, node.gpus[5]["uuid"], health[1])
    assert node.health(5) == (UNHEALTHY, *health)
    assert node.well() == [0, 1, 2, 3, 4, 6, 7]
    assert says in remarks(node.read())[0].sentence
    assert told is not ChangeKind.XID or change.message == f"GPU {change.uuid} reported XID 79"


@pytest.mark.parametrize("xid", [13, 31, 43, 45, 68, 109])  # those that NVIDIA's plugin leaves alone (internal/rm/health.go)
def test_an_xid_of_the_application_changes_nothing(watch, clock, xid):
    node = watch("dgx-a100-8")
    clock.step = 0.99
    assert node.hears(5, XID, xid) == ()
    assert node.health(5) == (HEALTHY, "", 0)


def test_every_other_xid_counts():
    assert [xid for xid in range(200) if not xid_rules().counts(xid)] == sorted(APPLICATION_XIDS)
    assert len(APPLICATION_XIDS) == 6


def test_waiting_in_vain_asks_nothing(watch, shim, clock):
    node = watch("dgx-a100-8")
    shim.forget_calls()
    clock.step = 0.99
    assert node.source.wait(1) == ()
    assert shim.calls() == shim.calls("nvmlEventSetWait_v2") > 0


@pytest.mark.parametrize(
    ("words", "counted", "skipped"),
    [
        pytest.param(("79",), (), (79, 13), id="but one, beside the application's"),
        pytest.param(("", "13"), (13,), (), id="and one of the application's"),
        pytest.param(("", "all"), (13,), (), id="and all of the application's"),
        pytest.param(("all",), (), (79,), id="or none"),
        pytest.param(("all", "79"), (79,), (48,), id="or none but one"),
    ],
)
def test_which_xids_count_can_be_told(words, counted, skipped):
    rules = xid_rules(*words)
    assert [xid for xid in (*counted, *skipped) if rules.counts(xid)] == list(counted)


def test_skipped_xids_reach_the_source(watch, shim):
    node = watch("dgx-a100-8", rules=xid_rules("79"))
    shim.event(1, XID, 79)
    assert [change.xid for change in node.hears(2, XID, 48)] == [48]


def recovery(name):
    return {"recovery": getattr(pynvml, f"NVML_GPU_RECOVERY_ACTION_{name}")}


@pytest.mark.parametrize(
    ("machine", "says", "expected"),
    [
        pytest.param("dgx-a100-8", {"failed": 1}, (UNHEALTHY, "ECC", 0), id="rows that cannot be remapped"),
        pytest.param("dgx-a100-8", {"pending": 1}, (HEALTHY, "", 0), id="rows that wait for the next reset, and work meanwhile"),
        *(
            pytest.param("gb200-tray-4", recovery(name), (UNHEALTHY, "ResetRequired", 0), id=f"the driver wants {name}")
            for name in ("GPU_RESET", "NODE_REBOOT", "DRAIN_P2P", "DRAIN_AND_RESET", "BUS_RESET", "SYSTEM_REBOOT")
        ),
        pytest.param("gb200-tray-4", recovery("RECOVER_IMEX_DOMAIN"), (HEALTHY, "", 0), id="the IMEX domain is to be repaired"),
    ],
)
def test_what_the_driver_says_of_a_gpu_counts_without_any_event_for_it_and_for_no_other(watch, machine, says, expected):
    node = watch(machine, lambda described: described.gpus[1].update(says))
    assert node.health(1) == expected
    assert set(range(len(node.gpus))) - set(node.well()) == ({1} if expected[0] == UNHEALTHY else set())


def test_a_gpu_that_still_tells_where_it_is_keeps_what_was_known_of_it_whatever_its_number(watch):
    node = watch("l40s-4")
    first, last = node.gpus[0]["uuid"], node.gpus[3]["uuid"]
    node.gpus[0], node.gpus[3] = node.gpus[3], node.gpus[0]
    node.described.fail("nvmlDeviceGetUUID", pynvml.NVML_ERROR_UNKNOWN, gpu=0)
    node.after()
    assert [gpu.uuid for gpu in node.read().gpus][::3] == [last, first]


def test_a_lost_gpu_keeps_its_place_and_links_until_it_answers_again_and_its_xid_is_forgotten(watch, shim):
    node = watch("dgx1-v100")
    before = node.read()
    node.hears(6, XID, 79)
    node.described.lose(6)
    assert [(change.kind, change.uuid) for change in node.after(SETTLE_SECONDS)] == [(ChangeKind.LOST, node.gpus[6]["uuid"])]
    assert node.read().links == before.links
    assert node.health(6) == (UNHEALTHY, "LostGPU", 79)
    assert {remark.flag for remark in remarks(node.read())} == {Flag.LOST_GPU}
    for _ in range(3):
        node.after(2 * QUIET_SECONDS)
    assert node.health(6) == (UNHEALTHY, "LostGPU", 79), "however long it is quiet"
    node.described.fails.clear()
    shim.forget_calls()
    assert node.kinds_after() == [ChangeKind.WELL]
    assert node.health(6) == (HEALTHY, "", 0)
    assert shim.calls("nvmlInitWithFlags") == 1
    assert [change.xid for change in node.hears(6, XID, 48)] == [48], "NVML was started anew and listens again"


def test_a_gpu_lost_before_the_first_look_stands_in_the_list_under_a_made_up_name(watch):
    graph = watch("dgx-a100-8", lambda described: described.lose(2)).read()
    assert graph.size == 8
    assert (graph.gpus[2].uuid, graph.gpus[2].health_reason) == ("GPU-lost-2", "LostGPU")
    assert graph.link(0, 1).lanes == 12


@pytest.mark.parametrize(
    ("function", "error", "reason"),
    [
        ("nvmlDeviceGetHandleByIndex_v2", "UNKNOWN", "LostGPU"),
        ("nvmlDeviceGetPciInfo_v3", "UNKNOWN", "LostGPU"),
        ("nvmlDeviceGetUUID", "NOT_SUPPORTED", "LostGPU"),
        ("nvmlDeviceGetUUID", "UNKNOWN", "Unreadable"),
        ("nvmlDeviceGetName", "UNKNOWN", "Unreadable"),
        ("nvmlDeviceGetFieldValues", "UNKNOWN", "Unreadable"),
        ("nvmlDeviceGetGpuFabricInfoV", "UNKNOWN", "Unreadable"),
        ("nvmlDeviceGetTopologyCommonAncestor", "GPU_IS_LOST", ""),  # between two questions
    ],
)
def test_one_gpu_with_errors_does_not_hide_the_others(watch, function, error, reason):
    node = watch("hgx-h100-8", lambda described: described.fail(function, getattr(pynvml, f"NVML_ERROR_{error}"), gpu=4))
    assert node.health(4)[1] == reason
    assert node.well() == [gpu for gpu in range(8) if gpu != 4 or not reason]


def test_a_fault_is_over_when_the_driver_has_asked_for_nothing_for_long_enough(watch):
    node = watch("gb200-tray-4")
    node.hears(1, XID, 62)
    assert node.after(QUIET_SECONDS - 1) == ()
    assert node.health(1)[0] == UNHEALTHY
    node.gpus[1] |= recovery("GPU_RESET")
    node.after()
    assert node.health(1)[0] == UNHEALTHY
    node.gpus[1] |= recovery("NONE")
    assert node.kinds_after() == [ChangeKind.WELL]


@pytest.mark.parametrize(
    ("machine", "says", "event", "quiet", "expected"),
    [
        ("gb200-tray-4", {"pending": 1}, (ECC,), 2, (UNHEALTHY, "ECC", 0)),
        ("dgx-a100-8", {}, (XID, 62), 100, (UNHEALTHY, "XID", 62)),
    ],
    ids=["while rows of memory wait for a reset", "where the driver cannot be asked"],
)
def test_a_fault_is_not_over_however_long_it_is_quiet(watch, machine, says, event, quiet, expected):
    node = watch(machine, lambda described: described.gpus[1].update(says))
    node.hears(1, *event)
    assert node.after(quiet * QUIET_SECONDS) == ()
    assert node.health(1) == expected


def test_an_event_is_followed_by_a_second_look_when_the_driver_has_settled(watch):
    node = watch("gb200-tray-4")
    node.hears(1, XID, 95)
    node.gpus[2] |= recovery("GPU_RESET")  # the driver found out meanwhile that another one suffered too
    assert [change.uuid for change in node.after(SETTLE_SECONDS)] == [node.gpus[2]["uuid"]]


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
def test_the_health_of_the_fabric(watch, name, value, expected):
    node = watch("gb200-tray-4")
    prefix = "NVML_GPU_FABRIC_HEALTH_MASK"
    node.described.fabrics[1]["mask"] = getattr(pynvml, f"{prefix}_{name}_{value}") << getattr(pynvml, f"{prefix}_SHIFT_{name}")
    assert set(node.kinds_after()) <= {ChangeKind.FABRIC}
    assert node.health(1) == expected


def test_a_gpu_that_leaves_the_fabric_is_told_with_the_links_it_loses(watch):
    node = watch("gb200-tray-4")
    node.described.fabrics[1]["state"] = pynvml.NVML_GPU_FABRIC_STATE_IN_PROGRESS
    assert node.kinds_after() == [ChangeKind.FABRIC, ChangeKind.LINKS]
    assert Flag.OFF_FABRIC in {remark.flag for remark in remarks(node.read())}


@pytest.mark.parametrize(
    ("fails", "heard"),
    [
        pytest.param(("nvmlDeviceGetSupportedEventTypes", pynvml.NVML_ERROR_NOT_SUPPORTED, 1), [79], id="of one GPU"),
        pytest.param(("nvmlEventSetCreate", pynvml.NVML_ERROR_UNKNOWN), [], id="at all"),
    ],
)
def test_where_events_cannot_be_had_the_slow_look_is_left(watch, fails, heard):
    node = watch("dgx-a100-8", lambda described: described.fail(*fails))
    assert node.health(1)[0] == HEALTHY
    node.gpus[1]["failed"] = 1
    assert node.kinds_after() == [ChangeKind.ECC]
    assert not heard or [change.xid for change in node.hears(2, XID, 79)] == heard


def test_an_event_whose_gpu_cannot_tell_its_name_leads_to_a_look_at_all(watch, shim):
    node = watch("dgx-a100-8")
    node.described.lose(7)
    shim.describe(node.described)
    assert [(change.kind, change.uuid) for change in node.hears(7, XID, 79)] == [(ChangeKind.LOST, node.gpus[7]["uuid"])]


def test_closing_ends_a_wait(watch, monkeypatch):
    source = watch("l40s-4").source
    listens, listen = threading.Event(), source._listen
    monkeypatch.setattr(source, "_listen", lambda seconds: listens.set() or listen(seconds))
    closing = threading.Thread(target=lambda: listens.wait() and source.close())
    closing.start()
    began = time.monotonic()
    assert source.wait(1e6) == ()
    closing.join()
    assert time.monotonic() - began < 1.5
    assert source.wait(1e6) == ()


def test_a_gpu_with_processes_is_busy(watch, shim):
    node = watch("l40s-4")
    uuid = node.gpus[2]["uuid"]
    assert not node.source.busy(uuid)
    shim.busy(2, 3)
    assert node.source.busy(uuid)
    shim.busy(2, 0)
    assert not node.source.busy("GPU-of-another-node")
