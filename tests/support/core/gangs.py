"""Nodes, clusters and gangs with defaults."""

from typing import Any

from kompakt_core.ids import JobUid, NodeName, PodUid, mask_of
from kompakt_core.patterns.names import Pattern
from kompakt_core.placement.model import (
    Gang,
    GpuRequest,
    NodeState,
    PlacementPolicy,
    Snapshot,
    Worker,
)
from kompakt_core.topology.describe import read_description

RING = GpuRequest(Pattern.RING, PlacementPolicy.PRESERVE, sensitive=True)


def node(name: str, description: str = "dgx1-v100", taken: tuple[int, ...] = (), **fields: Any) -> NodeState:
    return NodeState(NodeName(name), read_description(description, name), mask_of(taken), **fields)


def cluster(*nodes: NodeState) -> Snapshot:
    return Snapshot({state.name: state for state in nodes})


def worker(index: int, gpus: int = 2, **fields: Any) -> Worker:
    return Worker(index, f"job-worker-{index}-a1", PodUid(f"uid-{index}"), gpus, **fields)


def gang(count: int, gpus: int = 2, gpu_request: GpuRequest = RING, **fields: Any) -> Gang:
    return Gang(JobUid("job"), 1, tuple(worker(index, gpus) for index in range(count)), gpu_request, **fields)
