"""The NVML source: one discovery, kept; made anew on events and slowly otherwise."""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import pynvml

from kompakt_core.errors import InvalidInput
from kompakt_core.ids import GpuUuid
from kompakt_core.topology.graph import LinkGraph
from kompakt_device_plugin.nvml import library
from kompakt_device_plugin.nvml.assemble import assemble
from kompakt_device_plugin.nvml.changes import changes, failed
from kompakt_device_plugin.nvml.discovery import discover, minors
from kompakt_device_plugin.nvml.events import NvmlEvent, NvmlEvents
from kompakt_device_plugin.nvml.facts import GpuFacts, Reading
from kompakt_device_plugin.nvml.gpu_health import Fault, XidRules, standing, verdict
from kompakt_device_plugin.nvml.sysfs import Sysfs
from kompakt_device_plugin.source import Change

log = logging.getLogger(__name__)

REFRESH_SECONDS: Final = 60.0  # between two discoveries to which no event called
SETTLE_SECONDS: Final = 5.0  # after an event: the driver may still be finding out what it broke
SLICE_SECONDS: Final = 0.5  # the longest single wait for events: NVML's wait cannot be interrupted


class NvmlSource:
    """Reads the node through NVML. `clock` counts seconds from anywhere."""

    name = "nvml"

    def __init__(
        self,
        path: Path | None = None,
        *,
        sysfs: Sysfs | None = None,
        rules: XidRules | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.driver_version = ""
        self._path, self._sysfs, self._rules, self._clock = path, sysfs or Sysfs(), rules or XidRules(), clock
        self._lock = threading.RLock()  # of all below
        self._reading: Reading | None = None
        self._known: LinkGraph | InvalidInput | None = None
        self._graph: LinkGraph | None = None  # the last one that there was
        self._minors: Mapping[str, int] = {}
        self._faults: dict[str, Fault] = {}
        self._events: NvmlEvents | None = None
        self._ears = threading.Lock()  # held while waiting for events: their set must not go meanwhile
        self._due = clock()
        self._closed = threading.Event()
        self._open = False

    def read(self, node: Mapping[str, Any]) -> LinkGraph:
        """The node's link graph as last discovered; waits for a discovery only where there was none yet.

        Raises InvalidInput where NVML cannot be loaded or does not answer.
        """
        known = self._known or self._first()
        if isinstance(known, InvalidInput):
            raise known
        return known

    def wait(self, timeout: float) -> tuple[Change, ...]:
        """What happened, as soon as something does; empty after `timeout` seconds without anything, or once closed."""
        until = self._clock() + timeout
        while not self._closed.is_set():
            now = self._clock()
            if now >= self._due:
                found = self._refresh()
            elif now >= until:
                return ()
            else:
                found = self._listen(min(SLICE_SECONDS, until - now, self._due - now))
            if found:
                return found
        return ()

    def busy(self, uuid: GpuUuid) -> bool:
        """Whether NVML sees a process on this GPU. In a container it sees those of its own PID namespace only."""
        try:
            return bool(pynvml.nvmlDeviceGetComputeRunningProcesses(pynvml.nvmlDeviceGetHandleByUUID(uuid)))
        except pynvml.NVMLError:
            return False

    def minor(self, uuid: GpuUuid) -> int:
        """The number in a GPU's device file, as NVML said when it started: right now it may be starting anew.

        Raises InvalidInput where it did not say.
        """
        if uuid not in self._minors:
            raise InvalidInput(f"NVML does not tell the device file of {uuid}")
        return self._minors[uuid]

    def close(self) -> None:
        """Ends a wait within half a second and lets go of NVML."""
        self._closed.set()
        with self._lock:
            self._shut()

    def _first(self) -> LinkGraph | InvalidInput:
        with self._lock:
            if self._known is None:
                self._refresh()
            assert self._known is not None
            return self._known

    def _listen(self, seconds: float) -> tuple[Change, ...]:
        try:
            with self._ears:
                event = self._events.next(seconds) if self._events else None
                deaf = self._events is None
        except pynvml.NVMLError as error:
            log.warning("waiting for NVML's events failed: %s; looking at all GPUs", error)
            self._closed.wait(seconds)  # it may fail at once and for ever
            return self._refresh()
        if deaf:
            self._closed.wait(seconds)
        return self._happened(event) if event else ()

    def _happened(self, event: NvmlEvent) -> tuple[Change, ...]:
        if event.xid and not self._rules.counts(event.xid):
            log.info("XID %d of GPU %s is the application's, not the GPU's", event.xid, event.uuid or "unknown")
            return ()
        if event.uuid:
            self._faults[event.uuid] = Fault(self._clock(), event.xid)
        found = self._refresh()
        self._due = min(self._due, self._clock() + SETTLE_SECONDS)
        return found

    def _refresh(self) -> tuple[Change, ...]:
        """A discovery now; what it found to be other than before."""
        with self._lock:
            now = self._clock()
            self._due = now + REFRESH_SECONDS
            try:
                graph = self._discover(now)
            except InvalidInput as error:
                self._shut()
                found, self._known = failed(self._known, error), error
                return found
            found = changes(self._graph, graph)
            self._known = self._graph = graph
            return found

    def _discover(self, now: float) -> LinkGraph:
        self._start()
        before = self._reading
        reading = discover(self.driver_version, before, lambda place: self._sysfs.numa_node(place) < 0)
        self._faults = standing(self._faults, reading, before, now)
        verdicts = {gpu.uuid: verdict(gpu, self._faults.get(gpu.uuid)) for gpu in reading.gpus}
        nics = self._sysfs.nics([gpu.bus_id for gpu in reading.gpus])
        graph = assemble(reading, verdicts, self._numa, nics, self._graph)
        self._reading = reading
        if any(gpu.uuid not in self._minors for gpu in reading.gpus if not gpu.trouble):
            self._minors = minors()
        return graph

    def _numa(self, gpu: GpuFacts) -> int:
        """The node that sysfs names, else the only one with cores that the driver names; -1 unknown."""
        near = [node for node in gpu.memory_nodes if self._sysfs.has_cores(node)]
        node = self._sysfs.numa_node(gpu.bus_id)
        return node if node >= 0 or len(near) != 1 else near[0]

    def _start(self) -> None:
        """Starts NVML where it does not run; anew where a GPU is silent: nobody promises that a running NVML finds it again."""
        if self._open and self._reading and any(gpu.trouble for gpu in self._reading.gpus):
            self._shut()
        if self._open:
            return
        library.load(self._path)
        self.driver_version = library.start()
        self._open = True
        self._events = self._subscribe()
        self._minors = minors()  # a driver that was loaded anew may have numbered them in another way

    def _subscribe(self) -> NvmlEvents | None:
        try:
            events = NvmlEvents(pynvml.nvmlDeviceGetCount())
        except pynvml.NVMLError as error:
            log.warning("NVML sends no events: %s; GPUs are looked at every %.0f s", error, REFRESH_SECONDS)
            return None
        if events.deaf:
            log.warning("these GPUs send no events, they are looked at every %.0f s: %s", REFRESH_SECONDS, events.deaf)
        return events

    def _shut(self) -> None:
        with self._ears:
            if self._events:
                self._events.close()
                self._events = None
        if self._open:
            library.stop()
            self._open = False
