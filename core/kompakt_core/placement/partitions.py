"""Fabrics that join GPUs by partitions only."""

from dataclasses import replace

from kompakt_core.topology import bandwidth
from kompakt_core.topology.graph import FABRIC_KINDS, Link, LinkGraph, LinkKind


def without_fabric(graph: LinkGraph) -> LinkGraph:
    """The same GPUs with no partition switched on: what joins them then is not told, so it counts as the slowest PCIe path."""

    def demoted(link: Link) -> Link:
        if link.kind not in FABRIC_KINDS:
            return link
        return replace(link, kind=LinkKind.SYS, lanes=0, generation=0, megabytes_per_second=bandwidth.pcie()[LinkKind.SYS])

    return replace(graph, links=tuple(demoted(link) for link in graph.links), partitions=())
