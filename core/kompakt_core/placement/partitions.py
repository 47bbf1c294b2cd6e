"""Fabrics that join GPUs by partitions only: which GPU sets those are, by module id, never by index."""

from dataclasses import replace

from kompakt_core.topology import bandwidth
from kompakt_core.topology.graph import FABRIC_KINDS, Link, LinkGraph, LinkKind


def partition_masks(graph: LinkGraph) -> frozenset[int]:
    """The GPU sets of the partitions whose modules are all on this node."""
    bits = {gpu.module_id: 1 << gpu.index for gpu in graph.gpus if gpu.module_id >= 0}
    whole = (one.module_ids for one in graph.partitions if all(module in bits for module in one.module_ids))
    return frozenset(sum(bits[module] for module in set(modules)) for modules in whole)


def without_fabric(graph: LinkGraph) -> LinkGraph:
    """The same GPUs with no partition switched on: what joins them then is not told, so it counts as the slowest PCIe path."""

    def demoted(link: Link) -> Link:
        if link.kind not in FABRIC_KINDS:
            return link
        return replace(link, kind=LinkKind.SYS, lanes=0, generation=0, megabytes_per_second=bandwidth.pcie()[LinkKind.SYS])

    return replace(graph, links=tuple(demoted(link) for link in graph.links), partitions=())
