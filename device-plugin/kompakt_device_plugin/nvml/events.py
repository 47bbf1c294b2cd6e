"""NVML's events: errors that the driver reports by itself."""

from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import pynvml

from kompakt_device_plugin.nvml.library import UNKNOWN_QUESTION

_WANTED: Final = pynvml.nvmlEventTypeXidCriticalError | pynvml.nvmlEventTypeDoubleBitEccError


@dataclass(frozen=True, slots=True)
class NvmlEvent:
    """One event. `uuid` is empty where the GPU no longer tells its own; `xid` is 0 for memory that could not be corrected."""

    uuid: str
    xid: int = 0


class NvmlEvents:
    """The events of all GPUs at the time of making. Used by one thread; a GPU that does not support events sends none."""

    def __init__(self, count: int) -> None:
        self.deaf: list[int] = []  # indices of GPUs that send no events
        self._set: Any = pynvml.nvmlEventSetCreate()
        for index in range(count):
            try:
                handle = pynvml.nvmlDeviceGetHandleByIndex(index)
                kinds = pynvml.nvmlDeviceGetSupportedEventTypes(handle) & _WANTED
                pynvml.nvmlDeviceRegisterEvents(handle, kinds, self._set)
            except pynvml.NVMLError:
                self.deaf.append(index)

    def next(self, seconds: float) -> NvmlEvent | None:
        """The next event, None after `seconds` without one. Raises NVMLError where waiting fails."""
        try:
            data = pynvml.nvmlEventSetWait(self._set, max(0, round(seconds * 1000)))
        except pynvml.NVMLError as error:
            if error.value == pynvml.NVML_ERROR_TIMEOUT or error.value in UNKNOWN_QUESTION:
                return None
            raise
        xid = data.eventData if data.eventType == pynvml.nvmlEventTypeXidCriticalError else 0
        return NvmlEvent(_uuid(data.device), int(xid))

    def close(self) -> None:
        """Gives the set back; errors of a driver that is gone do not matter."""
        with suppress(pynvml.NVMLError):
            pynvml.nvmlEventSetFree(self._set)


def _uuid(handle: Any) -> str:
    try:
        return str(pynvml.nvmlDeviceGetUUID(handle))
    except pynvml.NVMLError:
        return ""
