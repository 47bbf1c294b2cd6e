"""Pods as the plugin has read them, on one node of eight GPUs."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from kompakt_core.contract.gpu_holders import GpuHolder
from kompakt_core.topology.describe import read_description
from kompakt_core.topology.graph import Gpu, LinkGraph
from kompakt_device_plugin.pods import NodePod
from tests.support.device_plugin.kubelet import NODE

GRAPH = read_description("dgx1-v100", NODE)
ALL = tuple(gpu.uuid for gpu in GRAPH.gpus)


def xid(graph: LinkGraph, gpu: int) -> Gpu:
    """That GPU after it has fallen off the bus."""
    return replace(graph.gpus[gpu], health="Unhealthy", health_reason="XID", xid=79)


def node_pod(name: str, gpus: Iterable[str] = (), size: int | None = None, **more: Any) -> NodePod:
    """A pod on which these GPUs are written; it asks for so many if nothing else is said."""
    written = tuple(gpus)
    facts = {"uid": f"uid-{name}", "namespace": "ns", "node": NODE, "size": size or len(written), "gpus": written}
    return NodePod(name=name, **(facts | more))


def holding(**gpus: Iterable[str]) -> tuple[GpuHolder, ...]:
    """Who holds what, by the name of the pod."""
    return tuple(GpuHolder(uuid, "ns", name, f"uid-{name}") for name, some in gpus.items() for uuid in some)


def takes(**gpus: Iterable[str]) -> dict[tuple[str, str], frozenset[str]]:
    """kubelet's list, by the name of the pod."""
    return {("ns", name): frozenset(some) for name, some in gpus.items()}
