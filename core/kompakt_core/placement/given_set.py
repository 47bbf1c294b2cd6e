"""A set of GPUs that was given away already, as it is written on its pod. Pure."""

from collections.abc import Iterable

from kompakt_core.errors import InvalidInput
from kompakt_core.ids import GpuIndex, GpuUuid, MegabytesPerSecond, indices_of, mask_of
from kompakt_core.placement.choose import requested_facts
from kompakt_core.placement.model import GpuRequest
from kompakt_core.topology.graph import LinkGraph


def in_order(
    gpus: Iterable[GpuUuid], graph: LinkGraph, gpu_request: GpuRequest
) -> tuple[tuple[GpuIndex, ...], MegabytesPerSecond]:
    """The indices of a set in the order of its pattern, and the value of the pattern on it.

    By index, with the value 0, where patterns are not matched: on machines of more GPUs than tables are made for.
    """
    place = {gpu.uuid: gpu.index for gpu in graph.gpus}
    mask = mask_of([place[uuid] for uuid in gpus])
    try:
        facts = requested_facts(graph, gpu_request)
    except InvalidInput:
        return indices_of(mask), MegabytesPerSecond(0)
    return facts.order(mask), facts.value(mask)
