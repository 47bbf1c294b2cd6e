"""What NVML does otherwise than one thinks: one claim each, as found on real machines and in other projects' reports."""

import ast
import ctypes
import inspect
from pathlib import Path

import pynvml
import pytest

import kompakt_device_plugin.nvml
from kompakt_core.topology.flags import Flag, remarks
from kompakt_core.topology.graph import LinkKind, PeerAccess
from kompakt_core.topology.machines import machine
from kompakt_device_plugin.nvml import discovery
from tests.support.nvml_shim.described import ALL_F
from tests.support.nvml_shim.machine import bus, describe

NO = pynvml.NVML_P2P_STATUS_NOT_SUPPORTED
UNKNOWN = pynvml.NVML_ERROR_UNKNOWN
CLIQUE = "4f5a8c1e-2b3d-4e5f-a1b2-c3d4e5f60718.32766"


def lanes(graph):
    return {(link.a, link.b): link.lanes for link in graph.links}


# What is asked of a graph, and what it answers.


def counts(*gpus):
    """How many lanes there are between these GPUs, or between this one and the others."""
    return lambda graph: {count for pair, count in lanes(graph).items() if set(gpus) <= set(pair)}


def flags(graph):
    return {remark.flag for remark in remarks(graph)}


def uneven(graph):
    return graph.uneven


def is_uneven(*pair):
    return lambda graph: pair in graph.uneven


def joined(graph):
    return {pair for pair, count in lanes(graph).items() if count}


def links(field):
    return lambda graph: {getattr(link, field) for link in graph.links}


def gpus(field, *indices):
    return lambda graph: {getattr(gpu, field) for gpu in graph.gpus if not indices or gpu.index in indices}


# What is changed on a machine before it is read.


def nothing(described):
    pass


def every(part, **values):
    """Each GPU, link or fabric has these values."""
    return lambda described: [found.update(values) for found in _all(getattr(described, part))]


def _all(found):
    return found if isinstance(found, list) else found.values()


def one(part, at, **values):
    return lambda described: getattr(described, part)[at].update(values)


def fail(function, code=UNKNOWN, **where):
    return lambda described: described.fail(function, code, **where)


def both(*changes):
    return lambda described: [change(described) for change in changes]


def one_lane_of_0_to_3(described):
    lane = next(lane for (gpu, lane), link in described.links.items() if gpu == 0 and link["bus"] == bus(3))
    described.links[0, lane]["active"] = 0


def two_spellings(described):
    for i, link in enumerate(described.links.values()):
        link["bus"] = link["bus"].removeprefix("0000").lower() if i % 2 else link["bus"]


MOST = pynvml.NVML_NVLINK_MAX_LINKS
STATE, UNTOLD = "nvmlDeviceGetNvLinkState", every("gpus", links=None)  # then every number up to NVML's largest is asked
NOT_THERE = {"not supported": pynvml.NVML_ERROR_NOT_SUPPORTED, "invalid": pynvml.NVML_ERROR_INVALID_ARGUMENT}
WAITING, STARTED = pynvml.NVML_GPU_FABRIC_STATE_IN_PROGRESS, pynvml.NVML_GPU_FABRIC_STATE_NOT_STARTED
OFF = {"state": STARTED}, {"state": WAITING}, {"status": UNKNOWN}, {"clique": 7}, {"uuid": "ab" * 16}
ASYMMETRIC, ALONE = {Flag.ASYMMETRIC_LINK}, {Flag.ASYMMETRIC_LINK, Flag.OFF_FABRIC}
OFF_FABRIC = {counts(5): {0}, counts(0, 1): {18}, flags: {Flag.OFF_FABRIC}}
MIG = {counts(2): {0}, gpus("mig_enabled", 2): {True}, gpus("health", 2): {"Unhealthy"}, gpus("health_reason", 2): {"MIG"}}
BRIDGED = "a100-pcie-4-two-bridges-4-numa"


def on(machine, change, expected):
    return machine, change, expected


MACHINES = {
    "1 the index of reading is a number": on("desktop-5-mixed", nothing, {links("peer_access"): {PeerAccess.CHIPSET}}),
    "1 though the package makes it a tuple": on("dgx-a100-8", nothing, {links("peer_access"): {PeerAccess.OK}}),
    # The package hands its argument to C as it is: a structure given by value stays empty.
    "2 fabric information is written where the reader looks": on("gb200-tray-4", nothing, {gpus("clique"): {CLIQUE}}),
    **{f"3 no switch to a GPU with {off}": on("hgx-h100-8", one("fabrics", 5, **off), OFF_FABRIC) for off in OFF},
    "3 two that wait are not joined": on("hgx-h100-8", every("fabrics", state=WAITING, status=0), {counts(): {0}}),
    "3 an all-zero cluster is no fabric beyond the node": on("hgx-h100-8", nothing, {gpus("clique"): {""}}),
    "3 two cliques are a mismatch": on(
        "gb200-tray-4", one("fabrics", 3, clique=1), {flags: {Flag.OFF_FABRIC, Flag.CLIQUE_MISMATCH}}
    ),
    "4 switches are counted by type": on("hgx-h100-8", every("links", bus="00000000:05:00.0"), {counts(): {18}}),
    "4 whatever their bus ids": on("hgx-h100-8", every("links", bus=ALL_F), {counts(): {18}}),
    "4 even where they look like a GPU's": on("hgx-h100-8", every("links", bus=bus(3)), {counts(): {18}}),
    # In virtual machines the other end may be all f although it is said to be a GPU; P2P status then decides.
    "4 a GPU whose bus id is hidden counts as a switch": on(BRIDGED, every("links", bus=ALL_F), {lanes: lanes(machine(BRIDGED))}),
    # All lanes of all eight GPUs are up, and still only bridged pairs are joined.
    "5 an active lane does not tell who is at its other end": on(
        "a100-pcie-8-bridge-pairs", nothing, {joined: {(0, 2), (1, 3), (4, 5), (6, 7)}}
    ),
    "5 switches join nobody whom the driver does not let through": on(
        "dgx-a100-8", one("pairs", (2, 6), p2p=",".join([str(NO)] * 5)), {counts(2, 6): {0}, counts(2, 5): {12}}
    ),
    "6 the version of NVLink is an enumeration": on("dgx-a100-8", nothing, {links("generation"): {3}}),
    "6 a generation newer than any table counts as the last": on(
        "gb200-tray-4", every("gpus", version=pynvml.NVML_NVLINK_VERSION_6_0), {links("megabytes_per_second"): {18 * 53125}}
    ),
    **{
        f"7 lanes that are not there are skipped: {name}": on(
            "dgx-a100-8", both(UNTOLD, *(fail(STATE, code, link=n) for n in range(12, MOST))), {counts(): {12}, flags: set()}
        )
        for name, code in NOT_THERE.items()
    },
    **{
        f"7 GPUs without any lane are none whose lanes cannot be read: {name}": on(
            "l40s-4", both(UNTOLD, fail(STATE, code)), {uneven: (), flags: {Flag.NO_FABRIC_LINKS}}
        )
        for name, code in NOT_THERE.items()
    },
    "7 a lane that answers with an error is not silently no lane": on(
        "dgx-a100-8", fail(STATE, gpu=3, link=4), {counts(0, 3): {11}, counts(0, 1): {12}, flags: {Flag.LOST_LANES}}
    ),
    "7 nor where both sides answer with errors": on(
        "dgx1-v100", both(fail(STATE, gpu=0), fail(STATE, gpu=1)), {is_uneven(0, 1): True, flags: ALONE}
    ),
    "7 an error in the middle of a lane counts too": on(
        "dgx1-v100", fail("nvmlDeviceGetNvLinkRemotePciInfo_v2", gpu=0), {flags: ALONE}
    ),
    "8 of a lane that only one side sees the smaller number counts": on(
        "dgx1-v100", one_lane_of_0_to_3, {counts(0, 3): {1}, uneven: ((0, 3),), flags: ASYMMETRIC}
    ),
    "8 fewer lanes to the switches on one side": on(
        "hgx-h100-8", one("links", (6, 17), active=0), {counts(6): {17}, flags: {Flag.LOST_LANES}}
    ),
    "9 bus ids are one in both spellings": on("dgx1-v100", two_spellings, {lanes: lanes(machine("dgx1-v100"))}),
    "9 and are told in the short one": on("dgx1-v100", nothing, {gpus("pci_bus_id", 0): {"0000:10:00.0"}}),
    "10 a GPU in MIG mode has no NVLink and is not offered": on("dgx-a100-8", one("gpus", 2, mig=1), MIG),
    "14 one module id for every GPU is none": on("l40s-4", every("gpus", module=0), {gpus("module_id"): {-1}}),
}


@pytest.mark.parametrize(("name", "change", "expected"), MACHINES.values(), ids=MACHINES)
def test_of_a_machine(read, name, change, expected):
    described = describe(name)
    change(described)
    graph = read(described)
    assert [what(graph) for what in expected] == list(expected.values())


V, INFO = "nvmlDeviceGetGpuFabricInfoV", "nvmlDeviceGetGpuFabricInfo"
VERSION, TYPE = "nvmlDeviceGetNvLinkVersion", "nvmlDeviceGetNvLinkRemoteDeviceType"


@pytest.mark.parametrize(
    ("missing", "name", "expected"),
    [
        pytest.param((V,), "gb200-tray-4", {gpus("clique"): {CLIQUE}}, id="2 answers the older question about the fabric"),
        pytest.param((V, INFO), "dgx-a100-8", {links("kind"): {LinkKind.NVSWITCH}}, id="2 or none, and still has its switches"),
        pytest.param((TYPE,), "dgx-a100-8", {lanes: lanes(machine("dgx-a100-8"))}, id="4 tells switches by their bus ids"),
        pytest.param((TYPE,), "dgx1-v100", {lanes: lanes(machine("dgx1-v100"))}, id="4 and GPUs"),
        pytest.param((VERSION,), "dgx-a100-8", {links("generation"): {3}}, id="6 has its generation by the model"),
        pytest.param((VERSION,), "gb200-tray-4", {links("generation"): {5}}, id="6 the newest as well"),
        pytest.param((VERSION, "nvmlDeviceGetName"), "dgx-a100-8", {links("generation"): {3}}, id="6 or by the number of lanes"),
        pytest.param((VERSION, "nvmlDeviceGetName"), "gb200-tray-4", {links("generation"): {4}}, id="6 which is less exact"),
    ],
)
def test_an_older_driver(read, compiled, missing, name, expected):
    graph = read(describe(name), library=compiled(missing))
    assert [what(graph) for what in expected] == list(expected.values())


def test_1_2_6_what_the_package_says_is_what_the_claims_are_about():
    assert discovery.READ_INDEX == 0
    assert ctypes.sizeof(pynvml.c_nvmlGpuFabricInfoV_t) == 36
    assert describe("dgx-a100-8").gpus[0]["version"] == 5


def test_11_no_program_is_run_to_find_out():
    folder = Path(inspect.getfile(kompakt_device_plugin.nvml)).parent
    imported = {
        name
        for path in folder.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in ([node.module] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names])
    }
    assert imported
    assert not imported & {"subprocess", "os", "shutil", "pty", "multiprocessing"}


def numa_nodes(sys, cores):
    for node, which in enumerate(cores):
        (sys / f"devices/system/node/node{node}").mkdir(parents=True)
        (sys / f"devices/system/node/node{node}/cpulist").write_text(which + "\n")


def test_12_numa_nodes_without_cores_are_none(read, tmp_path):
    """A Grace machine lists the memory of its GPUs as NUMA nodes of their own."""
    numa_nodes(tmp_path / "sys", ["0-71", "72-143", *[""] * 9])
    described = describe("gb200-tray-4")
    for gpu, near in zip(described.gpus, ({0, 2}, {0, 10}, {2}, {1}), strict=True):
        gpu["nodes"] = sum(1 << node for node in near)
    assert [gpu.numa_node for gpu in read(described).gpus] == [0, 0, -1, 1]


def test_13_a_bridge_between_two_numa_nodes_is_a_bridge(read, tmp_path):
    numa_nodes(tmp_path / "sys", ["0-23"] * 4)
    graph = read(describe("a100-pcie-4-two-bridges-4-numa"))
    assert [gpu.numa_node for gpu in graph.gpus] == [0, 1, 2, 3]
    assert lanes(graph)[0, 1] == lanes(graph)[2, 3] == 12


def test_14_a_gpu_is_its_uuid_neither_module_nor_minor_nor_numa_order(read):
    described = describe("h800-8")
    graph = read(described)
    assert [gpu.module_id for gpu in graph.gpus] == [6, 8, 7, 5, 1, 3, 4, 2]
    described.gpus.reverse()  # the driver lists them the other way round
    again = read(described)
    assert {gpu.uuid: gpu.module_id for gpu in again.gpus} == {gpu.uuid: gpu.module_id for gpu in graph.gpus}
    assert [gpu.uuid for gpu in again.gpus] == [gpu.uuid for gpu in reversed(graph.gpus)]
