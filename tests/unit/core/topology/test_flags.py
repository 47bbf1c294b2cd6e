"""What is unusual about a machine comes out as data, and never stops anything."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from kompakt_core.ids import GpuIndex
from kompakt_core.topology.flags import Flag, remarks
from kompakt_core.topology.graph import LinkGraph, Partition
from kompakt_core.topology.machines import MACHINES, machine
from kompakt_core.topology.matrix import parse_matrix
from kompakt_core.topology.wire import graph_from_spec, graph_to_spec

PCIE_ONLY = {"amd-4-pcie", "desktop-5-mixed", "h-class-8-no-nvlink", "l40s-4", "pcie-8-pix-phb", "pcie-8-pix-pxb"}
PCIE_ONLY |= {"rtx-2-ns", "rtx5090-2"}


def found(graph: LinkGraph) -> list[tuple[str, tuple[int, ...]]]:
    return [(remark.flag.value, tuple(remark.gpus)) for remark in remarks(graph)]


def changed(graph: LinkGraph, index: int, **fields: object) -> LinkGraph:
    gpus = [replace(gpu, **fields) if gpu.index == index else gpu for gpu in graph.gpus]  # type: ignore[arg-type]
    return replace(graph, gpus=tuple(gpus))


def test_known_machines_are_flagged_as_their_reports_say() -> None:
    flagged = {name: found(machine(name)) for name in MACHINES}
    expected = {name: [("NoFabricLinks", ())] if name in PCIE_ONLY else [] for name in MACHINES}
    assert flagged == expected | {"b200-8-gpu2-off-fabric": [("OffFabric", (2,))]}


@pytest.mark.parametrize(
    ("reason", "xid", "flag", "words"),
    [
        ("LostGPU", 79, Flag.LOST_GPU, "GPU 3 (LostGPU, XID 79)"),
        ("ECC", 0, Flag.ECC, "GPU 3 (ECC)"),
        ("CDISpecMissing", 0, Flag.CDI_SPEC_MISSING, "GPU 3 (CDISpecMissing)"),
        ("XID", 31, Flag.UNHEALTHY_GPU, "GPU 3 (XID, XID 31)"),
        ("", 0, Flag.UNHEALTHY_GPU, "unhealthy: GPU 3"),
    ],
)
def test_a_sick_gpu_carries_its_cause(reason: str, xid: int, flag: Flag, words: str) -> None:
    (remark,) = remarks(changed(machine("hgx-h100-8"), 3, health="Unhealthy", health_reason=reason, xid=xid))
    assert (remark.flag, remark.gpus, remark.degraded) == (flag, (3,), True)
    assert words in remark.sentence


def test_a_gpu_of_another_clique_stands_out_and_one_of_none_does_not() -> None:
    rack = machine("gb200-tray-4")
    rack = replace(rack, gpus=tuple(replace(gpu, clique="u.1") for gpu in rack.gpus))
    assert remarks(rack) == ()
    assert found(changed(rack, 2, clique="u.2")) == [("CliqueMismatch", (2,))]
    assert found(changed(rack, 2, clique="")) == []
    halves = changed(changed(rack, 0, clique="u.2"), 1, clique="u.2")
    assert found(halves) == [("CliqueMismatch", (2, 3))], "of equal halves the one whose name sorts last is the rest"


def without(graph: LinkGraph, gpus: Sequence[int]) -> LinkGraph:
    """The graph after these GPUs lost all NVLinks."""
    spec = graph_to_spec(graph, node_uid="u", source="text")
    for link in spec["links"]:
        if link["a"] in gpus or link["b"] in gpus:
            link.update(kind="SYS", lanes=0, megabytesPerSecond=6000)
    return graph_from_spec(spec)


def test_a_gpu_without_links_is_off_the_fabric_only_where_all_are_meant_to_be_on_it() -> None:
    assert found(without(machine("dgx1-v100"), [5])) == [("OffFabric", (5,))]
    assert found(without(machine("hgx-h100-8"), [0, 7])) == [("OffFabric", (0, 7))]
    assert found(without(machine("a100-pcie-8-bridge-pairs"), [0, 2])) == [], "a bridge more or less is how people buy them"
    assert found(without(machine("dgx1-v100"), range(8))) == [("NoFabricLinks", ())]


def test_fewer_lanes_to_the_switches_are_lost_lanes() -> None:
    rows = ["GPU0 GPU1 GPU2", "GPU0 X NV18 NV16", "GPU1 NV18 X NV16", "GPU2 NV16 NV16 X"]
    (remark,) = remarks(parse_matrix("\n".join(rows)))
    assert (remark.flag, remark.gpus, remark.sentence) == (Flag.LOST_LANES, (2,), "GPU 2 has 16 of 18 lanes to the switches")


def test_pairs_whose_sides_disagree_and_mig_are_flagged_broken_things_first() -> None:
    graph = changed(machine("dgx1-v100"), 6, mig_enabled=True)
    graph = replace(graph, uneven=((GpuIndex(0), GpuIndex(3)),))
    assert found(graph) == [("AsymmetricLink", (0, 3)), ("MIG", (6,))]
    assert [remark.degraded for remark in remarks(graph)] == [True, False]
    assert "0-3" in remarks(graph)[0].sentence


def test_partitions_are_sets_by_module_id() -> None:
    graph = machine("h800-8-shared")
    masks = graph.partition_masks
    assert [bin(mask).count("1") for mask in masks.values()] == [8, 4, 4, 2, 2, 2, 2] + [1] * 8
    assert masks[1] == 0b1111, "modules 5, 6, 7, 8 are GPUs 3, 0, 2, 1"
    assert masks[3] == 0b11, "modules 6 and 8 are GPUs 0 and 1"
    gone = replace(graph, partitions=(*graph.partitions, Partition(99, (1, 77))))
    assert 99 not in gone.partition_masks, "a partition with a GPU that is not here cannot be had"
