"""status.held of a GPUTopology: which pod holds which GPU, as the device plugin reports it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

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


@dataclass(frozen=True, slots=True)
class HolderReport:
    """What `status.held` says. `flaws`: what is wrong, where, and what would be right.

    `complete`: whether every entry names its GPU. Where one does not, any GPU of the node may be the one that it is about.
    """

    held: tuple[GpuHolder, ...]
    flaws: tuple[str, ...] = ()
    complete: bool = True


def readable(entries: object) -> HolderReport:
    """All that can be read: a broken entry hides no other one, and the GPU that it names is held, by whomever."""
    if entries is None:
        return HolderReport(())
    if not isinstance(entries, list | tuple):
        flaw = f"status.held: {type(entries).__name__}; right would be a list of objects with {', '.join(_KEYS)}"
        return HolderReport((), (flaw,), complete=False)
    found = [_readable(entry, f"status.held[{number}]") for number, entry in enumerate(entries)]
    return HolderReport(
        tuple(holder for holder, _ in found if holder),
        tuple(flaw for _, flaws in found for flaw in flaws),
        all(holder for holder, _ in found),
    )


def _readable(entry: Any, where: str) -> tuple[GpuHolder | None, list[str]]:
    """The holder, None where no GPU is named, and the flaws. What is no text counts as not said."""
    if not isinstance(entry, Mapping):
        return None, [f"{where}: {repr(entry)[:80]} is no object; right would be one with {', '.join(_KEYS)}"]
    texts = {key: entry.get(key, "") for key in _KEYS}
    wrong = [key for key, text in texts.items() if not isinstance(text, str) or (key == "uuid" and not text)]
    flaws = [f"{where}.{key}: {repr(entry.get(key))[:80]} is no name; right would be text" for key in wrong]
    if "uuid" in wrong:
        return None, flaws
    uuid, namespace, pod, pod_uid = ("" if key in wrong else text for key, text in texts.items())
    return GpuHolder(GpuUuid(uuid), namespace, pod, PodUid(pod_uid)), flaws
