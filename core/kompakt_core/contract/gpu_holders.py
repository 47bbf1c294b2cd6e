"""status.held of a GPUTopology: which pod holds which GPU, as the device plugin reports it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from kompakt_core.errors import InvalidInput
from kompakt_core.ids import GpuUuid, PodUid

_KEYS: Final = ("uuid", "namespace", "pod", "podUID")


@dataclass(frozen=True, slots=True, order=True)
class GpuHolder:
    """One GPU that a pod holds. `pod_uid` is empty where the API server no longer knows the pod but kubelet does."""

    uuid: GpuUuid
    namespace: str
    pod: str
    pod_uid: PodUid


def encode(held: Iterable[GpuHolder]) -> list[dict[str, str]]:
    """The list for the object, by UUID."""
    return [{"uuid": one.uuid, "namespace": one.namespace, "pod": one.pod, "podUID": one.pod_uid} for one in sorted(held)]


def decode(entries: object) -> tuple[GpuHolder, ...]:
    """The list as it stands; nothing where there is none.

    Raises:
        InvalidInput: an entry is no object, names no GPU, or holds what is no text.
    """
    if entries is None:
        return ()
    if not isinstance(entries, list | tuple):
        raise InvalidInput(f"status.held: {type(entries).__name__}; right would be a list of objects with {', '.join(_KEYS)}")
    return tuple(_decode(entry, number) for number, entry in enumerate(entries))


def _decode(entry: Any, number: int) -> GpuHolder:
    where = f"status.held[{number}]"
    if not isinstance(entry, Mapping):
        raise InvalidInput(f"{where}: {repr(entry)[:80]} is no object; right would be one with {', '.join(_KEYS)}")
    texts = [entry.get(key, "") for key in _KEYS]
    wrong = next((key for key, text in zip(_KEYS, texts, strict=True) if not isinstance(text, str)), None)
    if wrong or not texts[0]:
        raise InvalidInput(f"{where}.{wrong or 'uuid'}: {repr(entry.get(wrong or 'uuid'))[:80]} is no name; right would be text")
    uuid, namespace, pod, pod_uid = texts
    return GpuHolder(GpuUuid(uuid), namespace, pod, PodUid(pod_uid))
