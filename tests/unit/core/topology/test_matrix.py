"""The reader of `nvidia-smi topo -m`: every age of its output, and words at fault named by line and column."""

import pytest

from kompakt_core.topology.graph import LinkGraph, LinkKind
from kompakt_core.topology.machines import MACHINES
from kompakt_core.topology.matrix import parse_matrix
from tests.support.core.outcomes import refusal

NEW_DRIVER = (
    "\t\x1b[4mGPU0\tGPU1\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m\n"
    "GPU0\t X \tNV12\tPXB\tSYS\t48-63,176-191\t3\t\tN/A\n"
    "GPU1\tNV12\t X \tSYS\tNODE\t16-31,144-159\t1\t\tN/A\n"
    "NIC0\tPXB\tSYS\t X \tSYS\t\t\t\n"
    "NIC1\tSYS\tNODE\tSYS\t X \t\t\t\n"
    "\n"
    "Legend:\n\n  X    = Self\n  NV#  = Connection traversing a bonded set of # NVLinks\n"
    "\nNIC Legend:\n\n  NIC0: mlx5_2\n  NIC1: mlx5_0\n"
)
OLD_DRIVER = """\
        GPU0    GPU1    GPU2    mlx4_0  CPU Affinity
GPU0     X      PIX     SOC     PHB     0-9,20-29
GPU1    PIX      X      SOC     PHB     0-9,20-29
GPU2    SOC     SOC      X      SOC     10-19,30-39
mlx4_0  PHB     PHB     SOC      X
"""


def kinds(graph: LinkGraph) -> list[str]:
    return [link.kind.value for link in graph.links]


def test_output_of_a_new_driver_is_read_with_numa_nodes_and_nic_names() -> None:
    graph = parse_matrix(NEW_DRIVER)
    assert [gpu.numa_node for gpu in graph.gpus] == [3, 1]
    assert [(nic.name, nic.numa_node) for nic in graph.nics] == [("mlx5_0", 1), ("mlx5_2", 3)]
    assert graph.links[0].lanes == 12
    assert graph.links[0].megabytes_per_second == 12 * 25_781, "twelve lanes a GPU are an A100's"


def test_output_of_an_old_driver_has_soc_and_numa_nodes_from_cpu_lists() -> None:
    graph = parse_matrix(OLD_DRIVER)
    assert kinds(graph) == ["PIX", "SYS", "SYS"]
    assert [gpu.numa_node for gpu in graph.gpus] == [0, 0, 1]
    assert [(nic.name, nic.numa_node) for nic in graph.nics] == [("mlx4_0", 0)]


def test_spaces_in_place_of_tabs_change_nothing() -> None:
    tabs = MACHINES["h800-8"].text
    assert parse_matrix(tabs.expandtabs(12)) == parse_matrix(tabs)


def test_nic_columns_in_any_order_keep_their_names() -> None:
    graph = MACHINES["dgx1-v100-4nic"].graph()
    assert [nic.name for nic in graph.nics] == ["mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3"]


NICS = ["mlx5_0", "mlx4_1", "mlx5_bond_0", "rdmap16s27", "bnxt_re0", "irdma0", "hfi1_0", "efa_0", "ibp12s0", "NIC11"]


def test_network_cards_are_called_as_drivers_call_them() -> None:
    ways = " ".join(["PIX"] * len(NICS))
    graph = parse_matrix(f"GPU0 GPU1 {' '.join(NICS)}\nGPU0 X SYS {ways}\nGPU1 SYS X {ways}\n{NICS[0]} PIX PIX X\n")
    assert {nic.name for nic in graph.nics} == set(NICS)
    assert {nic.paths for nic in graph.nics} == {(LinkKind.PIX, LinkKind.PIX)}


def test_six_gpus_and_two_on_one_board_are_read() -> None:
    rows = [["X" if a == b else "PSB" if a // 2 == b // 2 else "PHB" for b in range(6)] for a in range(6)]
    header = "\t".join(["", *(f"GPU{i}" for i in range(6)), "CPU Affinity"])
    lines = ["\t".join([f"GPU{a}", *(f" {cell} " for cell in row), "0-7"]) for a, row in enumerate(rows)]
    graph = parse_matrix("\r\n".join([header, *lines]))
    assert sorted(kinds(graph)) == ["PHB"] * 12 + ["PIX"] * 3
    assert [gpu.numa_node for gpu in graph.gpus] == [0] * 6


def test_empty_affinity_cells_between_tabs_keep_their_place() -> None:
    graph = parse_matrix("\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\nGPU0\tX\tSYS\t\t1\nGPU1\tSYS\tX\t\t0\n")
    assert [gpu.numa_node for gpu in graph.gpus] == [1, 0]


def test_cpu_lists_that_are_none_leave_numa_nodes_unknown() -> None:
    for cpus in ("0:11", "9" * 5000, "0-"):
        graph = parse_matrix(f"\tGPU0\tGPU1\tCPU Affinity\nGPU0\tX\tSYS\t{cpus}\nGPU1\tSYS\tX\t0-3\n")
        assert [gpu.numa_node for gpu in graph.gpus] == [-1, -1]


def test_lanes_of_a_row_that_no_gpu_has_go_through_a_switch() -> None:
    assert set(kinds(MACHINES["hgx-h100-8"].graph())) == {"NVSwitch"}
    assert set(kinds(MACHINES["h100-sxm-4"].graph())) == {"NVLink"}, "3 peers x 6 lanes are the GPU's own 18"
    off_fabric = MACHINES["b200-8-gpu2-off-fabric"].graph()
    assert {link.kind for link in off_fabric.links if 2 in (link.a, link.b)} == {LinkKind.NODE, LinkKind.SYS}


def test_a_pair_whose_sides_disagree_takes_the_weaker_and_is_listed() -> None:
    graph = parse_matrix("GPU0 GPU1 GPU2\nGPU0 X NV2 SYS\nGPU1 NV1 X PIX\nGPU2 SYS PIX X\n")
    assert graph.uneven == ((0, 1),)
    assert graph.link(1, 0).lanes == 1


def test_uuids_come_from_the_caller() -> None:
    assert [gpu.uuid for gpu in parse_matrix(NEW_DRIVER, uuids=lambda index: f"GPU-{index}").gpus] == ["GPU-0", "GPU-1"]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "no header line beginning with GPU0"),
        ("hello\nworld\n", "no header line beginning with GPU0"),
        ("GPU0 X NV1\nGPU1 NV1 X\n", "line 1, column 1: the row of GPU0 comes before a header line"),
        ("GPU0 GPU2\n", "line 1, column 6: found GPU2 where GPU1 is due"),
        ("GPU0 GPU1\nGPU0 X NV2\n", "the header names 2 GPUs but only 1 rows follow"),
        ("GPU0 GPU1\nGPU0 X NV2\nGPU2 NV2 X\n", "line 3, column 1: found 'GPU2' where the row of GPU1 is due"),
        ("GPU0 GPU1\nGPU0 X NV2\nGPU1 NV2\n", "line 3, column 6: the row of GPU1 ends here with 1 of 2 columns"),
        ("GPU0 GPU1\nGPU0 X NVX\nGPU1 NV2 X\n", "line 2, column 8: unknown link 'NVX'; known are X, NV<lanes>, PIX"),
        ("GPU0 GPU1\nGPU0 X NV99\nGPU1 NV2 X\n", "line 2, column 8: NV99 has 99 lanes; 1 to 36 are possible"),
        ("GPU0 GPU1\nGPU0 NV2 NV2\nGPU1 NV2 X\n", "line 2, column 6: found 'NV2' between GPU0 and GPU0; expected X"),
        ("GPU0 GPU1\nGPU0 X X\nGPU1 NV2 X\n", "line 2, column 8: found 'X' between GPU0 and GPU1; expected NV<lanes>"),
        ("GPU0 GPU1 CPUs\nGPU0 X PIX\nGPU1 PIX X\n", "line 1, column 11: unknown column 'CPUs'"),
        ("GPU0 mlx5_0 GPU1\n", "line 1, column 6: GPU columns must come before NIC columns"),
        ("GPU0 mlx5_0 mlx5_0\n", "line 1, column 13: two NIC columns have one name"),
        ("GPU0 mlx5_0\nGPU0 X NV4\n", "line 2, column 8: unknown link 'NV4' to a NIC"),
        ("x" * 200_001, "200001 characters; at most 200000 are read"),
    ],
)
def test_wrong_text_is_refused_with_its_place(text: str, sentence: str) -> None:
    assert sentence in refusal(parse_matrix, text)
