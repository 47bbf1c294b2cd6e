"""How a pod wants its GPUs chosen, read from its annotations."""

from collections.abc import Mapping

from kompakt_core.contract import placement_annotations
from kompakt_core.placement.gpu_request import gpu_request
from kompakt_core.placement.model import GpuRequest


def gpu_request_of(annotations: Mapping[str, str], *, same_numa_node: bool = False) -> GpuRequest:
    """How a pod wants its GPUs chosen, from its input annotations; `same_numa_node`: its TrainingJob demands that.

    Raises:
        InvalidInput: an annotation holds a word that is not known, or edges that are none.
    """
    return gpu_request(placement_annotations.decode(annotations), same_numa_node=same_numa_node)
