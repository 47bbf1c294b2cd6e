"""From what stands on a pod to how its GPUs are chosen."""

from functools import lru_cache

from kompakt_core.contract.placement_annotations import PlacementAnnotations
from kompakt_core.placement.model import GpuRequest


@lru_cache(maxsize=256)  # many pods, few requests
def gpu_request(asked: PlacementAnnotations, *, same_numa_node: bool = False) -> GpuRequest:
    """How a pod with these annotations wants its GPUs chosen; `same_numa_node`: its TrainingJob demands that."""
    return GpuRequest(
        pattern=asked.pattern,
        policy=asked.policy,
        sensitive=asked.sensitivity.needs_bandwidth,
        required_link=asked.required_link,
        same_numa_node=asked.same_numa_node or same_numa_node,
        edges=asked.edges,
    )
