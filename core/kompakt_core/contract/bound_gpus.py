"""The GPUs of a bound pod: written with its Binding by the extender, and corrected by the device plugin to those it holds."""

from collections.abc import Mapping
from dataclasses import dataclass

from kompakt_core import contract
from kompakt_core.contract import counts, gpu_lists
from kompakt_core.errors import InvalidInput
from kompakt_core.ids import GpuIndex, GpuUuid, MegabytesPerSecond


@dataclass(frozen=True, slots=True)
class BoundGpus:
    """The same GPUs as UUIDs and as indices of the node, in pattern order; `value`: MB/s that the pattern gets on them."""

    uuids: tuple[GpuUuid, ...]
    indices: tuple[GpuIndex, ...]
    value: MegabytesPerSecond


def encode(found: BoundGpus) -> dict[str, str]:
    """The three annotations; they are always written together."""
    return {
        contract.ANN_GPUS: gpu_lists.encode_uuids(found.uuids),
        contract.ANN_GPU_INDICES: gpu_lists.encode_indices(found.indices),
        contract.ANN_VALUE: counts.encode(found.value),
    }


def decode(annotations: Mapping[str, str]) -> BoundGpus | None:
    """What is written on a pod; None where nothing is.

    Raises:
        InvalidInput: somebody wrote what neither extender nor device plugin writes.
    """
    if contract.ANN_GPUS not in annotations:
        return None
    found = BoundGpus(
        uuids=gpu_lists.decode_uuids(annotations[contract.ANN_GPUS], contract.ANN_GPUS),
        indices=indices(annotations),
        value=MegabytesPerSecond(counts.decode(annotations.get(contract.ANN_VALUE), contract.ANN_VALUE, "MB/s")),
    )
    if len(found.uuids) != len(found.indices):
        numbers = f"{len(found.indices)} indices for {len(found.uuids)} UUIDs"
        raise InvalidInput(f"{contract.ANN_GPU_INDICES}: {numbers}; right would be one for each of {contract.ANN_GPUS}")
    return found


def uuids(annotations: Mapping[str, str]) -> tuple[GpuUuid, ...]:
    """The GPUs written on a pod; none where the annotation is of no use."""
    return gpu_lists.readable_uuids(annotations.get(contract.ANN_GPUS))


def indices(annotations: Mapping[str, str]) -> tuple[GpuIndex, ...]:
    """The same GPUs as indices of the node.

    Raises:
        InvalidInput: the annotation is no list of indices.
    """
    return gpu_lists.decode_indices(annotations.get(contract.ANN_GPU_INDICES, ""), contract.ANN_GPU_INDICES)


def readable_indices(annotations: Mapping[str, str]) -> str:
    """The same as it is written, for who tells others; empty where the annotation is of no use."""
    try:
        return gpu_lists.encode_indices(indices(annotations))
    except InvalidInput:
        return ""


def value(annotations: Mapping[str, str]) -> int | None:
    """MB/s that the pattern gets; None where that is not written, or cannot be read."""
    return counts.readable(annotations.get(contract.ANN_VALUE))


def one_line(annotations: Mapping[str, str]) -> str | None:
    """What stands there for the GPUs, as it is but in one line: anybody may have written anything; None where nothing does."""
    text = annotations.get(contract.ANN_GPUS)
    return None if text is None else " ".join(text.split())
