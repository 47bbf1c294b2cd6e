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

OK, NO = pynvml.NVML_P2P_STATUS_OK, pynvml.NVML_P2P_STATUS_NOT_SUPPORTED


def flags(graph):
    return {remark.flag for remark in remarks(graph)}


def lanes(graph):
    return {(link.a, link.b): link.lanes for link in graph.links}


def test_1_the_index_of_reading_is_a_number_though_the_package_makes_it_a_tuple(read):
    assert discovery.READ_INDEX == 0
    graph = read(describe("desktop-5-mixed"))
    assert {link.peer_access for link in graph.links} == {PeerAccess.CHIPSET}
    assert {link.peer_access for link in read(describe("dgx-a100-8")).links} == {PeerAccess.OK}


def test_2_fabric_information_is_written_where_the_reader_looks(read, compiled):
    """The package hands its argument to C as it is: a structure given by value stays empty."""
    graph = read(describe("gb200-tray-4"))
    assert {gpu.clique for gpu in graph.gpus} == {"4f5a8c1e-2b3d-4e5f-a1b2-c3d4e5f60718.32766"}
    assert ctypes.sizeof(pynvml.c_nvmlGpuFabricInfoV_t) == 36


def test_2_an_older_driver_answers_the_older_question(read, compiled):
    old = compiled(("nvmlDeviceGetGpuFabricInfoV",))
    assert {gpu.clique for gpu in read(describe("gb200-tray-4"), library=old).gpus} == {
        "4f5a8c1e-2b3d-4e5f-a1b2-c3d4e5f60718.32766"
    }


def test_2_a_driver_without_any_fabric_question_still_has_its_switches(read, compiled):
    older = compiled(("nvmlDeviceGetGpuFabricInfoV", "nvmlDeviceGetGpuFabricInfo"))
    graph = read(describe("dgx-a100-8"), library=older)
    assert graph.links[0].kind is LinkKind.NVSWITCH


@pytest.mark.parametrize(
    "change",
    [
        {"state": pynvml.NVML_GPU_FABRIC_STATE_NOT_STARTED},
        {"state": pynvml.NVML_GPU_FABRIC_STATE_IN_PROGRESS},
        {"status": pynvml.NVML_ERROR_UNKNOWN},
        {"clique": 7},
        {"uuid": "ab" * 16},
    ],
)
def test_3_a_gpu_that_is_not_with_the_others_in_the_fabric_has_no_switch_to_them(read, change):
    described = describe("hgx-h100-8")
    described.fabrics[5] |= change
    graph = read(described)
    assert {link.kind for link in graph.links if 5 in (link.a, link.b)} <= {LinkKind.NODE, LinkKind.SYS}
    assert lanes(graph)[0, 1] == 18
    assert Flag.OFF_FABRIC in flags(graph)


def test_3_status_says_nothing_before_registration_is_completed_and_two_that_wait_are_not_joined(read):
    described = describe("hgx-h100-8")
    for gpu in range(8):
        described.fabrics[gpu] |= {"state": pynvml.NVML_GPU_FABRIC_STATE_IN_PROGRESS, "status": pynvml.NVML_SUCCESS}
    assert set(lanes(read(described)).values()) == {0}


def test_3_an_all_zero_cluster_is_no_fabric_beyond_the_node_and_two_cliques_are_a_mismatch(read):
    assert {gpu.clique for gpu in read(describe("hgx-h100-8")).gpus} == {""}
    described = describe("gb200-tray-4")
    described.fabrics[3]["clique"] = 1
    assert Flag.CLIQUE_MISMATCH in flags(read(described))


@pytest.mark.parametrize("end", ["00000000:05:00.0", ALL_F, bus(3)])
def test_4_switches_are_counted_by_type_whatever_their_bus_ids(read, end):
    described = describe("hgx-h100-8")
    for link in described.links.values():
        link["bus"] = end
    assert set(lanes(read(described)).values()) == {18}


def test_4_a_gpu_whose_bus_id_is_hidden_counts_as_a_switch(read):
    """In virtual machines the other end may be all f although it is said to be a GPU; P2P status then decides."""
    described = describe("a100-pcie-4-two-bridges-4-numa")
    for link in described.links.values():
        link["bus"] = ALL_F
    assert lanes(read(described)) == lanes(machine("a100-pcie-4-two-bridges-4-numa"))


def test_4_a_driver_that_does_not_tell_types_tells_switches_by_their_bus_ids(read, compiled):
    old = compiled(("nvmlDeviceGetNvLinkRemoteDeviceType",))
    for name in ("dgx-a100-8", "dgx1-v100"):
        assert lanes(read(describe(name), library=old)) == lanes(machine(name))


def test_5_an_active_lane_does_not_tell_who_is_at_its_other_end(read):
    """All lanes of all eight GPUs are up, and still only bridged pairs are joined."""
    graph = read(describe("a100-pcie-8-bridge-pairs"))
    assert {pair for pair, count in lanes(graph).items() if count} == {(0, 2), (1, 3), (4, 5), (6, 7)}


def test_5_lanes_to_switches_join_nobody_whom_the_driver_does_not_let_through(read):
    described = describe("dgx-a100-8")
    described.pairs[2, 6]["p2p"] = f"{NO},{NO},{NO},{NO},{NO}"
    graph = read(described)
    assert lanes(graph)[2, 6] == 0
    assert lanes(graph)[2, 5] == 12


def test_6_the_version_of_nvlink_is_an_enumeration(read):
    assert describe("dgx-a100-8").gpus[0]["version"] == 5
    assert {link.generation for link in read(describe("dgx-a100-8")).links} == {3}


@pytest.mark.parametrize("missing", [("nvmlDeviceGetNvLinkVersion",), ("nvmlDeviceGetNvLinkVersion", "nvmlDeviceGetName")])
def test_6_without_a_version_the_model_tells_the_generation_and_without_a_name_the_number_of_lanes(read, compiled, missing):
    old = compiled(missing)
    assert {link.generation for link in read(describe("dgx-a100-8"), library=old).links} == {3}
    named = missing == ("nvmlDeviceGetNvLinkVersion",)
    assert {link.generation for link in read(describe("gb200-tray-4"), library=old).links} == {5 if named else 4}


def test_6_a_generation_newer_than_any_table_counts_as_the_last(read):
    described = describe("gb200-tray-4")
    for gpu in described.gpus:
        gpu["version"] = pynvml.NVML_NVLINK_VERSION_6_0
    assert {link.megabytes_per_second for link in read(described).links} == {18 * 53125}


@pytest.mark.parametrize("code", [pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_INVALID_ARGUMENT])
def test_7_lanes_that_are_not_there_are_skipped(read, code):
    described = describe("dgx-a100-8")
    for gpu in described.gpus:
        gpu["links"] = None  # then every number up to NVML's largest is asked
    for lane in range(12, pynvml.NVML_NVLINK_MAX_LINKS):
        described.fail("nvmlDeviceGetNvLinkState", code, link=lane)
    graph = read(described)
    assert set(lanes(graph).values()) == {12}
    assert flags(graph) == set()


@pytest.mark.parametrize("code", [pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_INVALID_ARGUMENT])
def test_7_gpus_without_any_lane_are_no_gpus_whose_lanes_cannot_be_read(read, code):
    described = describe("l40s-4")
    for gpu in described.gpus:
        gpu["links"] = None
    described.fail("nvmlDeviceGetNvLinkState", code)
    graph = read(described)
    assert graph.uneven == ()
    assert flags(graph) == {Flag.NO_FABRIC_LINKS}


def test_7_a_lane_that_answers_with_an_error_is_not_silently_no_lane(read):
    described = describe("dgx-a100-8")
    described.fail("nvmlDeviceGetNvLinkState", pynvml.NVML_ERROR_UNKNOWN, gpu=3, link=4)
    graph = read(described)
    assert lanes(graph)[0, 3] == 11
    assert lanes(graph)[0, 1] == 12
    assert Flag.LOST_LANES in flags(graph)


def test_7_nor_where_both_sides_answer_with_errors(read):
    described = describe("dgx1-v100")
    described.fail("nvmlDeviceGetNvLinkState", pynvml.NVML_ERROR_UNKNOWN, gpu=0)
    described.fail("nvmlDeviceGetNvLinkState", pynvml.NVML_ERROR_UNKNOWN, gpu=1)
    graph = read(described)
    assert (0, 1) in graph.uneven
    assert Flag.ASYMMETRIC_LINK in flags(graph)


def test_7_an_error_in_the_middle_of_a_lane_counts_too(read):
    described = describe("dgx1-v100")
    described.fail("nvmlDeviceGetNvLinkRemotePciInfo_v2", pynvml.NVML_ERROR_UNKNOWN, gpu=0)
    assert Flag.ASYMMETRIC_LINK in flags(read(described))


def test_8_of_a_lane_that_only_one_side_sees_the_smaller_number_counts(read):
    described = describe("dgx1-v100")
    lane = next(lane for (gpu, lane), link in described.links.items() if gpu == 0 and link["bus"] == bus(3))
    described.links[0, lane]["active"] = 0
    graph = read(described)
    assert lanes(graph)[0, 3] == 1
    assert graph.uneven == ((0, 3),)
    assert Flag.ASYMMETRIC_LINK in flags(graph)


def test_8_fewer_lanes_to_the_switches_on_one_side(read):
    described = describe("hgx-h100-8")
    described.links[6, 17]["active"] = 0
    graph = read(described)
    assert {count for (a, b), count in lanes(graph).items() if 6 in (a, b)} == {17}
    assert Flag.LOST_LANES in flags(graph)


def test_9_bus_ids_are_one_in_both_spellings(read):
    described = describe("dgx1-v100")
    for i, link in enumerate(described.links.values()):
        link["bus"] = link["bus"].removeprefix("0000").lower() if i % 2 else link["bus"]
    graph = read(described)
    assert lanes(graph) == lanes(machine("dgx1-v100"))
    assert graph.gpus[0].pci_bus_id == "0000:10:00.0"


def test_10_a_gpu_in_mig_mode_has_no_nvlink_and_is_not_offered(read):
    described = describe("dgx-a100-8")
    described.gpus[2]["mig"] = 1
    graph = read(described)
    assert {count for (a, b), count in lanes(graph).items() if 2 in (a, b)} == {0}
    assert graph.gpus[2].mig_enabled
    assert (graph.gpus[2].health, graph.gpus[2].health_reason) == ("Unhealthy", "MIG")


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


def test_12_numa_nodes_without_cores_are_none(read, tmp_path):
    """A Grace machine lists the memory of its GPUs as NUMA nodes of their own."""
    nodes = tmp_path / "sys/devices/system/node"
    for node, cores in {0: "0-71", 1: "72-143", 2: "", 10: ""}.items():
        (nodes / f"node{node}").mkdir(parents=True)
        (nodes / f"node{node}/cpulist").write_text(cores + "\n")
    described = describe("gb200-tray-4")
    for gpu, near in zip(described.gpus, ({0, 2}, {0, 10}, {2}, {1}), strict=True):
        gpu["nodes"] = sum(1 << node for node in near)
    assert [gpu.numa_node for gpu in read(described).gpus] == [0, 0, -1, 1]


def test_13_a_bridge_between_two_numa_nodes_is_a_bridge(read, tmp_path):
    for node in range(4):
        (tmp_path / f"sys/devices/system/node/node{node}").mkdir(parents=True)
        (tmp_path / f"sys/devices/system/node/node{node}/cpulist").write_text("0-23\n")
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


def test_14_boards_that_give_every_gpu_one_module_id_have_none(read):
    described = describe("l40s-4")
    for gpu in described.gpus:
        gpu["module"] = 0
    assert {gpu.module_id for gpu in read(described).gpus} == {-1}
