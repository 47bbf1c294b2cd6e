"""What a picture of a link graph says in words: its kinds of links, which GPUs are alike, and all that is not a link."""

from collections.abc import Mapping
from dataclasses import dataclass

from kompakt_core.ids import indices_of
from kompakt_core.topology.flags import remarks
from kompakt_core.topology.graph import NVLINK_KINDS, Link, LinkGraph, LinkKind, Nic

MOST_DRAWN = 16  # GPUs drawn one by one; beyond, those with equal links are drawn as one


@dataclass(frozen=True, slots=True)
class LinkClass:
    """Links that look the same: kind, lanes and MB/s one way; how many pairs have one."""

    word: str
    kind: LinkKind
    lanes: int
    megabytes_per_second: int
    pairs: int


def short(link: Link) -> str:
    """The word of `nvidia-smi topo -m` for a link: NV2, SYS, ..."""
    if link.kind in NVLINK_KINDS:
        return f"NV{link.lanes}"
    return "XG" if link.kind is LinkKind.XGMI else link.kind.value


def key_of(link: Link) -> tuple[str, int]:
    """What tells classes apart."""
    return short(link), link.megabytes_per_second


def classes(graph: LinkGraph) -> dict[tuple[str, int], LinkClass]:
    """The classes of a graph by key, fastest first."""
    found: dict[tuple[str, int], list[Link]] = {}
    for link in graph.links:
        found.setdefault(key_of(link), []).append(link)
    ordered = sorted(found.items(), key=lambda item: (-item[0][1], item[0][0]))
    return {key: LinkClass(key[0], links[0].kind, links[0].lanes, key[1], len(links)) for key, links in ordered}


def ranges(indices: tuple[int, ...]) -> str:
    """0-3,6 for 0, 1, 2, 3, 6."""
    parts: list[list[int]] = []
    for i in sorted(indices):
        if parts and i == parts[-1][-1] + 1:
            parts[-1].append(i)
        else:
            parts.append([i])
    return ",".join(str(part[0]) if len(part) == 1 else f"{part[0]}-{part[-1]}" for part in parts)


def alike(graph: LinkGraph, held: Mapping[int, object]) -> list[tuple[int, ...]]:
    """GPUs in groups: in one group all have equal links to all others, one NUMA node and one holder."""
    groups: list[list[int]] = []
    for b in range(graph.size):
        home = next((group for group in groups if _equal(graph, held, group[0], b)), None)
        if home is None:
            groups.append([b])
        else:
            home.append(b)
    return [tuple(group) for group in groups]


def _equal(graph: LinkGraph, held: Mapping[int, object], a: int, b: int) -> bool:
    if graph.gpus[a].numa_node != graph.gpus[b].numa_node or held.get(a) != held.get(b):
        return False
    return all(key_of(graph.link(a, c)) == key_of(graph.link(b, c)) for c in range(graph.size) if c not in (a, b))


def facts(graph: LinkGraph) -> list[str]:
    """Lines about NUMA nodes, network cards, partitions, and what is unusual."""
    lines = []
    nodes = sorted({gpu.numa_node for gpu in graph.gpus if gpu.numa_node >= 0})
    if nodes:
        on = {node: ranges(tuple(gpu.index for gpu in graph.gpus if gpu.numa_node == node)) for node in nodes}
        lines.append(", ".join(f"NUMA node {node}: GPU {gpus}" for node, gpus in on.items()))
    lines += [_nic(nic) for nic in graph.nics]
    if graph.partitions:
        sets = [ranges(tuple(indices_of(mask))) for mask in graph.partition_masks.values()]
        lines.append("partitions, each handed out whole or not at all: GPU " + ", ".join(f"({gpus})" for gpus in sets))
    return lines + [f"{'broken' if remark.degraded else 'note'}: {remark.sentence}" for remark in remarks(graph)]


def nearest(nic: Nic) -> tuple[str, tuple[int, ...]]:
    """(the best kind of way to a GPU, the GPUs that have it); ("", ()) where ways are unknown."""
    order = [kind.value for kind in (LinkKind.PIX, LinkKind.PXB, LinkKind.PHB, LinkKind.NODE, LinkKind.SYS)]
    best = min((kind.value for kind in nic.paths), key=order.index, default="")
    return best, tuple(i for i, kind in enumerate(nic.paths) if kind.value == best)


def _nic(nic: Nic) -> str:
    kind, gpus = nearest(nic)
    node = f", NUMA node {nic.numa_node}" if nic.numa_node >= 0 else ""
    return f"{nic.name}{node}" + (f", {kind} to GPU {ranges(gpus)}" if kind else "")
