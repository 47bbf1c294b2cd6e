"""Machines as the shim reads them: a known machine's link matrix, and from machines.yaml what only NVML tells."""

from itertools import cycle
from pathlib import Path
from typing import Any

import pynvml
import yaml

from kompakt_core.topology.graph import FABRIC_KINDS, LinkGraph, LinkKind
from kompakt_core.topology.machines import machine
from kompakt_core.topology.matrix import text_uuid
from tests.support.nvml_shim.described import ALL_F, Described

MACHINES: dict[str, dict[str, Any]] = yaml.safe_load((Path(__file__).parent / "machines.yaml").read_text())
LEVELS = {
    LinkKind.PIX: pynvml.NVML_TOPOLOGY_SINGLE,
    LinkKind.PXB: pynvml.NVML_TOPOLOGY_MULTIPLE,
    LinkKind.PHB: pynvml.NVML_TOPOLOGY_HOSTBRIDGE,
    LinkKind.NODE: pynvml.NVML_TOPOLOGY_NODE,
    LinkKind.SYS: pynvml.NVML_TOPOLOGY_SYSTEM,
}


def describe(name: str) -> Described:
    """A known machine of machines.yaml."""
    about, graph = MACHINES[name], machine(name)
    lanes = about["lanes"]
    gpus = [_gpu(name, about, graph, i) for i in range(graph.size)]
    found = Described(about["driver"], gpus)
    for i in range(graph.size):
        ends = _ends(about, graph, gpus, i)
        for lane in range(lanes):
            active = lane < len(ends)
            found.links[i, lane] = {"active": int(active), **(ends[lane] if active else {"bus": ALL_F})}
    for link in graph.links:
        found.pairs[link.a, link.b] = _pair(graph, link.a, link.b)
    if "fabric" in about:
        found.fabrics = {i: _fabric(about, joined=_joined(graph, i)) for i in range(graph.size)}
    return found


def bus(gpu: int) -> str:
    """NVML writes bus ids with eight digits of domain."""
    return f"00000000:{0x10 + gpu * 3:02X}:00.0"


def _gpu(name: str, about: dict[str, Any], graph: LinkGraph, i: int) -> dict[str, Any]:
    recovery = about.get("recovery")
    return {
        "uuid": text_uuid(name, i),
        "bus": bus(i),
        "name": about["name"],
        "memory": 80 << 30,
        "minor": i,
        "links": about["lanes"],
        "version": getattr(pynvml, about["version"]) if "version" in about else None,
        "module": about["modules"][i] if "modules" in about else None,
        "mig": 0 if about["lanes"] else None,
        "nodes": 1 << graph.gpus[i].numa_node if graph.gpus[i].numa_node >= 0 else None,
        "recovery": getattr(pynvml, recovery) if recovery else None,
    }


def _joined(graph: LinkGraph, i: int) -> bool:
    return any(graph.link(i, j).kind in FABRIC_KINDS for j in range(graph.size) if j != i)


def _ends(about: dict[str, Any], graph: LinkGraph, gpus: list[dict[str, Any]], i: int) -> list[dict[str, Any]]:
    """The other end of each active lane of one GPU."""
    if about["ends"] == "peers":
        gpu = pynvml.NVML_NVLINK_DEVICE_TYPE_GPU
        lanes = [(j, graph.link(i, j).lanes) for j in range(graph.size) if j != i]
        return [{"type": gpu, "bus": gpus[j]["bus"]} for j, count in lanes for _ in range(count)]
    if not _joined(graph, i):
        return []
    ids = cycle([f"00000000:{number:02X}:00.0" for number in (5, 6, 7, 8)] if about["ends"] == "switches" else [ALL_F])
    return [{"type": pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH, "bus": next(ids)} for _ in range(about["lanes"])]


def _pair(graph: LinkGraph, a: int, b: int) -> dict[str, Any]:
    """NV# hides the PCIe level of a pair: it is made up from NUMA nodes then."""
    link, near = graph.link(a, b), graph.gpus[a].numa_node == graph.gpus[b].numa_node
    nvlink = link.kind in FABRIC_KINDS
    level = LEVELS[(LinkKind.NODE if near else LinkKind.SYS) if nvlink else link.kind]
    ok, no = pynvml.NVML_P2P_STATUS_OK, pynvml.NVML_P2P_STATUS_NOT_SUPPORTED
    reads = ok if nvlink else pynvml.NVML_P2P_STATUS_CHIPSET_NOT_SUPPORTED
    return {"level": level, "p2p": f"{reads},{reads},{ok if nvlink else no},{no},{no}"}


def _fabric(about: dict[str, Any], *, joined: bool) -> dict[str, Any]:
    if not joined:
        return {"state": pynvml.NVML_GPU_FABRIC_STATE_IN_PROGRESS, "uuid": "00" * 16}
    fabric = about["fabric"]
    return {"state": pynvml.NVML_GPU_FABRIC_STATE_COMPLETED, "uuid": fabric["cluster"], "clique": fabric["clique"], "mask": 0x1AA}
