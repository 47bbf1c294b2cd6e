"""What is unusual about a link graph, as data: broken things (the reasons of `Degraded`) and mere peculiarities.

All of it is read from the graph itself, so that a graph from NVML, from a text and from the API are judged alike.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from kompakt_core.ids import GpuIndex
from kompakt_core.topology.graph import FABRIC_KINDS, HEALTHY, Gpu, LinkGraph, LinkKind


class Flag(StrEnum):
    """Reasons, in order of weight; written as they stand into conditions."""

    LOST_GPU = "LostGPU"
    ECC = "ECC"
    UNHEALTHY_GPU = "UnhealthyGPU"
    CDI_SPEC_MISSING = "CDISpecMissing"
    CLIQUE_MISMATCH = "CliqueMismatch"
    OFF_FABRIC = "OffFabric"
    ASYMMETRIC_LINK = "AsymmetricLink"
    LOST_LANES = "LostLanes"
    MIG = "MIG"
    NO_FABRIC_LINKS = "NoFabricLinks"


# The others are how the machine is built or set up: nothing to repair.
DEGRADED: Final = frozenset(set(Flag) - {Flag.MIG, Flag.NO_FABRIC_LINKS})


@dataclass(frozen=True, slots=True)
class Remark:
    """One peculiarity: what it is, which GPUs it concerns (empty: the machine), and a sentence for people."""

    flag: Flag
    gpus: tuple[GpuIndex, ...]
    sentence: str

    @property
    def degraded(self) -> bool:
        """Whether something is broken."""
        return self.flag in DEGRADED


def remarks(graph: LinkGraph) -> tuple[Remark, ...]:
    """All peculiarities of a graph, broken things first; empty for a machine that is as it should be."""
    found = [*_unhealthy(graph), *_cliques(graph), *_off_fabric(graph), *_uneven(graph), *_lost_lanes(graph), *_plain(graph)]
    order = list(Flag)
    return tuple(sorted(found, key=lambda remark: order.index(remark.flag)))


def _names(gpus: Iterable[int]) -> str:
    return ", ".join(f"GPU {i}" for i in gpus)


def _unhealthy(graph: LinkGraph) -> Iterator[Remark]:
    by_flag: dict[Flag, list[Gpu]] = {}
    for gpu in graph.gpus:
        if gpu.health != HEALTHY:
            by_flag.setdefault(_cause(gpu), []).append(gpu)
    for flag, gpus in by_flag.items():
        yield Remark(flag, tuple(gpu.index for gpu in gpus), f"unhealthy: {', '.join(map(_diagnosis, gpus))}")


def _cause(gpu: Gpu) -> Flag:
    own = (Flag.LOST_GPU, Flag.ECC, Flag.CDI_SPEC_MISSING)
    return Flag(gpu.health_reason) if gpu.health_reason in own else Flag.UNHEALTHY_GPU


def _diagnosis(gpu: Gpu) -> str:
    about = [word for word in (gpu.health_reason, f"XID {gpu.xid}" if gpu.xid else "") if word]
    return f"GPU {gpu.index} ({', '.join(about)})" if about else f"GPU {gpu.index}"


def _cliques(graph: LinkGraph) -> Iterator[Remark]:
    """GPUs of one node belong to one clique: NVIDIA's DRA driver takes more than one for an error, so do we."""
    count: dict[str, list[GpuIndex]] = {}
    for gpu in graph.gpus:
        if gpu.clique:
            count.setdefault(gpu.clique, []).append(gpu.index)
    if len(count) > 1:
        main = max(count, key=lambda clique: (len(count[clique]), clique))
        odd = tuple(i for clique, gpus in sorted(count.items()) if clique != main for i in gpus)
        yield Remark(Flag.CLIQUE_MISMATCH, odd, f"{_names(odd)}: registered with another fabric clique than the rest ({main})")


def _fabric_links(graph: LinkGraph, switched_only: bool = False) -> list[list[int]]:
    """Lanes of each fabric link of each GPU."""
    lanes: list[list[int]] = [[] for _ in graph.gpus]
    for link in graph.links:
        if link.kind is LinkKind.NVSWITCH or (link.kind in FABRIC_KINDS and not switched_only):
            lanes[link.a].append(link.lanes)
            lanes[link.b].append(link.lanes)
    return lanes


def _off_fabric(graph: LinkGraph) -> Iterator[Remark]:
    """GPUs without a fabric link although the machine is built to join them all.

    It is where there are switches, or where most GPUs are joined to two or more others: bridges join pairs and leave
    GPUs out on purpose.
    """
    lanes = _fabric_links(graph)
    built = any(_fabric_links(graph, switched_only=True)) or 2 * sum(len(found) > 1 for found in lanes) > graph.size
    lost = tuple(GpuIndex(i) for i, found in enumerate(lanes) if not found)
    if built and lost:
        yield Remark(Flag.OFF_FABRIC, lost, f"{_names(lost)}: no fabric link although the others have theirs")


def _uneven(graph: LinkGraph) -> Iterator[Remark]:
    if graph.uneven:
        pairs = ", ".join(f"{a}-{b}" for a, b in graph.uneven)
        gpus = tuple(sorted({i for pair in graph.uneven for i in pair}))
        yield Remark(Flag.ASYMMETRIC_LINK, gpus, f"the two sides report different links, the weaker counts: {pairs}")


def _lost_lanes(graph: LinkGraph) -> Iterator[Remark]:
    """Behind a switch all GPUs have equally many lanes; one that has fewer with everybody has lost some."""
    most = [max(found, default=0) for found in _fabric_links(graph, switched_only=True)]
    full = max(most, default=0)
    weak = tuple(GpuIndex(i) for i, lanes in enumerate(most) if 0 < lanes < full)
    if weak:
        yield Remark(
            Flag.LOST_LANES, weak, f"{', '.join(f'GPU {i} has {most[i]}' for i in weak)} of {full} lanes to the switches"
        )


def _plain(graph: LinkGraph) -> Iterator[Remark]:
    mig = tuple(gpu.index for gpu in graph.gpus if gpu.mig_enabled)
    if mig:
        yield Remark(Flag.MIG, mig, f"{_names(mig)}: in MIG mode, whose instances have no link to others")
    if graph.size > 1 and not any(_fabric_links(graph)):
        yield Remark(Flag.NO_FABRIC_LINKS, (), "no NVLink or the like: all pairs go over PCIe")
