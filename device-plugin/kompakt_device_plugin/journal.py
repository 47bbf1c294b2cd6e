"""The write-ahead file: what was handed over and is not yet seen in kubelet's own list.

Between Allocate and that list lie some milliseconds. Should this process end there, and kubelet start anew as well (it
then lists no pods for a moment), nobody but this file would know that the GPUs are taken.

A disk that is busy keeps no pod waiting: after WRITE_SECONDS the GPUs are handed over, and the file follows when it can.
"""

import json
import logging
import threading
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from kompakt_core.contract.gpu_holders import GpuHolder
from kompakt_core.errors import InvalidInput
from kompakt_core.ids import GpuUuid, PodUid
from kompakt_device_plugin.coalescing_writer import CoalescingWriter
from kompakt_device_plugin.node_lock import FOLDER
from kompakt_device_plugin.pods import NodePod
from kompakt_device_plugin.reconcile import PodKey

log = logging.getLogger(__name__)

FILE: Final = "handed-over.json"
VERSION: Final = 1
MAX_ENTRIES: Final = 1024
WRITE_SECONDS: Final = 0.1
_NOBODY: Final = PodUid("")


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """One set handed over to a container. The pod is the one on which that set was written; unknown (empty) where none was."""

    gpus: tuple[GpuUuid, ...]
    pod_uid: PodUid = _NOBODY
    namespace: str = ""
    pod: str = ""

    @property
    def held(self) -> tuple[GpuHolder, ...]:
        """The entry as status.held has it."""
        return tuple(GpuHolder(uuid, self.namespace, self.pod, self.pod_uid) for uuid in self.gpus)


def still_open(
    entries: Iterable[JournalEntry], listed: Mapping[PodKey, Collection[GpuUuid]], pods: Iterable[NodePod]
) -> tuple[JournalEntry, ...]:
    """Those that are not seen in kubelet's list and may still be. Pure.

    They may not when the pod has ended, or, where it is unknown, when no pod of that size is still without its GPUs.
    """
    shown = {uuid for gpus in listed.values() for uuid in gpus}
    waiting = {pod.uid: pod.size for pod in pods if not pod.finished and pod.key not in listed}
    sizes = set(waiting.values())

    def counts(entry: JournalEntry) -> bool:
        return entry.pod_uid in waiting if entry.pod_uid else len(entry.gpus) in sizes

    return tuple(entry for entry in entries if not shown.intersection(entry.gpus) and counts(entry))


def disowned(
    entries: Iterable[JournalEntry], listed: Mapping[PodKey, Collection[GpuUuid]], pods: Iterable[NodePod]
) -> tuple[JournalEntry, ...]:
    """The entries; where kubelet lists their pod with other GPUs, that set went to another one, nobody knows whom. Pure."""
    theirs = {pod.uid: set(listed[pod.key]) for pod in pods if pod.key in listed}

    def one(entry: JournalEntry) -> JournalEntry:
        return JournalEntry(entry.gpus) if theirs.get(entry.pod_uid, set(entry.gpus)).isdisjoint(entry.gpus) else entry

    return tuple(map(one, entries))


def with_pending(held: tuple[GpuHolder, ...], pending: Iterable[JournalEntry]) -> tuple[GpuHolder, ...]:
    """`status.held` with what was handed over but is not listed yet; each GPU stands there once. Pure."""
    known = {one.uuid for one in held}
    more = {one.uuid: one for entry in pending for one in entry.held if one.uuid not in known}
    return tuple(sorted((*held, *more.values())))


class Journal:
    """The entries, in memory and in the file; used by kubelet's calls and by the reporting thread at once."""

    def __init__(self, plugins: Path) -> None:
        """`plugins` is kubelet's folder of device plugins."""
        self._path = plugins / FOLDER / FILE
        self._file = CoalescingWriter(self._path)
        self._lock = threading.Lock()
        self._entries: tuple[JournalEntry, ...] = ()
        self._vain: frozenset[JournalEntry] = frozenset()

    def load(self) -> None:
        """Takes over what an earlier process left. A file that cannot be read is said and counts as empty."""
        try:
            self._entries = read_entries(self._path.read_bytes())
        except FileNotFoundError:
            return
        except (OSError, InvalidInput) as error:
            log.error("%s is of no use, going by what kubelet lists: %s", self._path, error)

    @property
    def entries(self) -> tuple[JournalEntry, ...]:
        """All entries, oldest first."""
        return self._entries

    @property
    def in_vain(self) -> frozenset[JournalEntry]:
        """Those whose GPUs kubelet has offered again since: to it they are free, whatever came of handing them over."""
        return self._vain

    def begin(self, entry: JournalEntry) -> bool:
        """Before GPUs are handed over, to whom nobody else has them any more. Whether it stands in the file; False after
        WRITE_SECONDS, in which case it will later.
        """
        with self._lock:
            others = tuple(old for old in self._entries if set(old.gpus).isdisjoint(entry.gpus))
            self._vain -= {entry}  # the same set for the same pod once more, by a kubelet that forgot the first time
            number = self._keep((*others, entry))
        return self._file.wait(number, WRITE_SECONDS)

    def disown(self, entries: Collection[JournalEntry]) -> None:
        """These are others' than they say."""
        if entries:
            with self._lock:
                self._vain = frozenset(JournalEntry(entry.gpus) if entry in entries else entry for entry in self._vain)
                self._keep(tuple(JournalEntry(entry.gpus) if entry in entries else entry for entry in self._entries))

    def end(self, over: Collection[JournalEntry]) -> None:
        """These are seen, or in vain."""
        if over:
            with self._lock:
                self._keep(tuple(entry for entry in self._entries if entry not in over))

    def offered(self, gpus: Collection[GpuUuid]) -> frozenset[JournalEntry]:
        """kubelet offers these again; what had been handed over of them. Never waits: this is part of its question."""
        again = frozenset(entry for entry in self._entries if not set(gpus).isdisjoint(entry.gpus))
        if not again <= self._vain:
            with self._lock:
                self._vain |= again.intersection(self._entries)
        return again

    def flush(self, seconds: float) -> bool:
        """Whether all stands in the file after at most so many seconds."""
        with self._lock:
            number = self._file.put(write_entries(self._entries))
        return self._file.wait(number, seconds)

    def _keep(self, entries: tuple[JournalEntry, ...]) -> int:
        self._entries = entries[-MAX_ENTRIES:]
        self._vain = self._vain.intersection(self._entries)
        return self._file.put(write_entries(self._entries))


def write_entries(entries: Iterable[JournalEntry]) -> bytes:
    """The file's content."""
    return json.dumps({"version": VERSION, "entries": [asdict(entry) for entry in entries]}).encode()


def read_entries(data: bytes) -> tuple[JournalEntry, ...]:
    """The entries of a file's content. Raises InvalidInput with what is wrong where."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"no JSON: {error}") from None
    if not isinstance(found, dict) or found.get("version") != VERSION or not isinstance(found.get("entries"), list):
        raise InvalidInput(f"not an object with version {VERSION} and a list of entries")
    if len(found["entries"]) > MAX_ENTRIES:
        raise InvalidInput(f"{len(found['entries'])} entries; at most {MAX_ENTRIES} are written")
    return tuple(_entry(number, raw) for number, raw in enumerate(found["entries"]))


def _entry(number: int, raw: Any) -> JournalEntry:
    names = ("pod_uid", "namespace", "pod")
    gpus = raw.get("gpus") if isinstance(raw, dict) else None
    if not isinstance(gpus, list) or not gpus or not all(isinstance(value, str) and value for value in gpus):
        raise InvalidInput(f"entry {number}: gpus must be a list of UUIDs")
    texts = [raw.get(name, "") for name in names]
    if not all(isinstance(text, str) for text in texts):
        raise InvalidInput(f"entry {number}: {', '.join(names)} must be texts")
    return JournalEntry(tuple(GpuUuid(gpu) for gpu in gpus), PodUid(texts[0]), texts[1], texts[2])
