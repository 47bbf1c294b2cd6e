"""What NVML said, made a link graph. Pure: facts in, graph out."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import combinations
from typing import Final

import pynvml

from kompakt_core.ids import GpuIndex, GpuUuid
from kompakt_core.topology import bandwidth
from kompakt_core.topology.graph import HEALTHY, UNHEALTHY, Gpu, Link, LinkGraph, LinkKind, Nic, PeerAccess
from kompakt_core.topology.sides import Path, Side, link_of, nvlink_path
from kompakt_device_plugin.nvml.facts import Fabric, GpuFacts, PairFacts, Reading
from kompakt_device_plugin.nvml.gpu_health import GpuHealth

_LEVELS: Final = {
    pynvml.NVML_TOPOLOGY_INTERNAL: LinkKind.PIX,  # two GPUs of one board: no closer word among topo -m's but PIX
    pynvml.NVML_TOPOLOGY_SINGLE: LinkKind.PIX,
    pynvml.NVML_TOPOLOGY_MULTIPLE: LinkKind.PXB,
    pynvml.NVML_TOPOLOGY_HOSTBRIDGE: LinkKind.PHB,
    pynvml.NVML_TOPOLOGY_NODE: LinkKind.NODE,
    pynvml.NVML_TOPOLOGY_SYSTEM: LinkKind.SYS,
}
_ACCESS: Final = {
    None: PeerAccess.UNTOLD,
    pynvml.NVML_P2P_STATUS_OK: PeerAccess.OK,
    pynvml.NVML_P2P_STATUS_CHIPSET_NOT_SUPPORTED: PeerAccess.CHIPSET,
    pynvml.NVML_P2P_STATUS_GPU_NOT_SUPPORTED: PeerAccess.GPU,
    pynvml.NVML_P2P_STATUS_IOH_TOPOLOGY_NOT_SUPPORTED: PeerAccess.TOPOLOGY,
    pynvml.NVML_P2P_STATUS_DISABLED_BY_REGKEY: PeerAccess.REGISTRY_KEY,
    pynvml.NVML_P2P_STATUS_NOT_SUPPORTED: PeerAccess.NOT_SUPPORTED,
}
# NVLink's generation by NVML's enumeration, read from nvidia-ml-py's own names: 5 is NVML_NVLINK_VERSION_3_1, generation 3.
_GENERATIONS: Final[Mapping[int, int]] = {
    number: int(name.split("_")[3])
    for name, number in vars(pynvml).items()
    if name.startswith("NVML_NVLINK_VERSION_") and name.split("_")[3].isdigit()
}
_NO_CLUSTER: Final = "00000000-0000-0000-0000-000000000000"


def assemble(
    reading: Reading,
    verdicts: Mapping[str, GpuHealth],
    numa: Callable[[GpuFacts], int],
    nics: tuple[Nic, ...] = (),
    before: LinkGraph | None = None,
) -> LinkGraph:
    """The link graph of one discovery.

    `verdicts` tell by UUID whether a GPU is healthy, `numa` tells its NUMA node. Pairs with a GPU that does not answer keep the
    links that they had `before`: nothing is known to have changed, and nobody gets that GPU meanwhile.
    """
    modules = [facts.module_id for facts in reading.gpus if facts.module_id is not None]
    told = len(set(modules)) == len(modules)  # boards without modules may give every GPU the same number
    gpus = tuple(_gpu(facts, verdicts[facts.uuid], numa(facts), told) for facts in reading.gpus)
    generation = _generation(reading)
    links, uneven = [], []
    for a, b in combinations(range(len(gpus)), 2):
        first, second = reading.gpus[a], reading.gpus[b]
        kept = _kept(first, second, before) if first.trouble or second.trouble else None
        link, disagree = (kept, False) if kept else judge(first, second, reading.pairs[a, b], generation)
        links.append(replace(link, a=GpuIndex(a), b=GpuIndex(b)))
        if disagree:
            uneven.append((GpuIndex(a), GpuIndex(b)))
    return LinkGraph(gpus, tuple(links), nics, tuple(uneven))


def judge(a: GpuFacts, b: GpuFacts, pair: PairFacts, generation: int) -> tuple[Link, bool]:
    """(what joins a pair, whether its two sides disagree): NVLink by core's rule for a pair, else the PCIe level.

    An instance of a GPU in MIG mode has no link to others, so such a GPU has none either. Where lanes of both could not be
    read, the sides count as disagreeing: that they have no NVLink is not known.
    """
    access = _ACCESS.get(pair.read_status, PeerAccess.UNKNOWN)
    reachable = pair.nvlink_status == pynvml.NVML_P2P_STATUS_OK and not (left_out(a.fabric) or left_out(b.fabric))
    path, uneven = nvlink_path(_side(a), _side(b), reachable=reachable)
    if a.mig or b.mig:
        path, uneven = None, False
    elif path is None and a.lanes.unread and b.lanes.unread:
        uneven = True
    level = LinkKind.SYS if pair.level is None else _LEVELS.get(pair.level, LinkKind.SYS)
    return link_of(a.index, b.index, path or Path(level), generation, access, a.model), uneven


def left_out(fabric: Fabric | None) -> bool:
    """Whether the driver knows of a fabric that this GPU is not registered with, or not yet. A100 and older know of none."""
    known = fabric is not None and fabric.state != pynvml.NVML_GPU_FABRIC_STATE_NOT_SUPPORTED
    return known and not is_registered(fabric)


def is_registered(fabric: Fabric | None) -> bool:
    """Whether registration has completed without an error; `status` says nothing before."""
    if fabric is None or fabric.state != pynvml.NVML_GPU_FABRIC_STATE_COMPLETED:
        return False
    return bool(fabric.status == pynvml.NVML_SUCCESS)


def clique(fabric: Fabric | None) -> str:
    """The name of the fabric clique, "<cluster UUID>.<clique id>"; empty where there is no fabric beyond the node."""
    if fabric is None or not is_registered(fabric) or fabric.cluster in ("", _NO_CLUSTER):
        return ""
    return f"{fabric.cluster}.{fabric.clique}"


def _gpu(facts: GpuFacts, verdict: GpuHealth, numa: int, modules_told: bool) -> Gpu:
    return Gpu(
        index=GpuIndex(facts.index),
        uuid=GpuUuid(facts.uuid),
        numa_node=numa,
        model=facts.model,
        memory_bytes=facts.memory_bytes,
        pci_bus_id=facts.bus_id,
        module_id=facts.module_id if modules_told and facts.module_id is not None else -1,
        mig_enabled=facts.mig,
        health=HEALTHY if verdict.healthy else UNHEALTHY,
        health_reason=verdict.reason,
        xid=verdict.xid,
        clique=clique(facts.fabric),
    )


def _side(facts: GpuFacts) -> Side:
    """For the rule, the part of the fabric counts also where the cluster's UUID is all zero."""
    fabric = facts.fabric
    part = f"{fabric.cluster}.{fabric.clique}" if fabric and is_registered(fabric) else ""
    return Side(facts.bus_id, facts.lanes.to_gpus, facts.lanes.to_switches, part)


def _generation(reading: Reading) -> int:
    """The oldest generation of the node's NVLinks, as the lanes tell it, else the models, else (as for texts) their number."""
    told = [_GENERATIONS[facts.lanes.version] for facts in reading.gpus if facts.lanes.version in _GENERATIONS]
    told = told or [known for facts in reading.gpus if (known := bandwidth.generation_of_model(facts.model))]
    lanes = [sum(facts.lanes.to_gpus.values()) + facts.lanes.to_switches for facts in reading.gpus]
    return min(told) if told else bandwidth.generation_by_count(max(lanes, default=0))


def _kept(a: GpuFacts, b: GpuFacts, before: LinkGraph | None) -> Link | None:
    index = {gpu.uuid: gpu.index for gpu in before.gpus} if before else {}
    first, second = index.get(GpuUuid(a.uuid)), index.get(GpuUuid(b.uuid))
    return before.link(first, second) if before and first is not None and second is not None else None
