"""The driver's library behind nvidia-ml-py: loading it, and telling errors apart."""

import ctypes
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeVar

import pynvml

from kompakt_core.errors import InvalidInput

T = TypeVar("T")
SYSTEM_LIBRARY: Final = "libnvidia-ml.so.1"

# Without these nothing can be said of a node; all other functions are optional.
NEEDED: Final = (
    "nvmlInitWithFlags",
    "nvmlShutdown",
    "nvmlSystemGetDriverVersion",
    "nvmlDeviceGetCount_v2",
    "nvmlDeviceGetHandleByIndex_v2",
    "nvmlDeviceGetUUID",
    "nvmlDeviceGetPciInfo_v3",
    "nvmlDeviceGetNvLinkState",
    "nvmlDeviceGetNvLinkRemotePciInfo_v2",
    "nvmlDeviceGetTopologyCommonAncestor",
    "nvmlDeviceGetP2PStatus",
    "nvmlEventSetCreate",
    "nvmlEventSetFree",
    "nvmlDeviceGetSupportedEventTypes",
    "nvmlDeviceRegisterEvents",
)

# The driver or this GPU does not know the question: an answer, not a fault.
UNKNOWN_QUESTION: Final = frozenset(
    {
        pynvml.NVML_ERROR_NOT_SUPPORTED,
        pynvml.NVML_ERROR_INVALID_ARGUMENT,
        pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
        pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
        pynvml.NVML_ERROR_DEPRECATED,
        pynvml.NVML_ERROR_NO_PERMISSION,
        pynvml.NVML_ERROR_NOT_FOUND,
        pynvml.NVML_ERROR_NO_DATA,
    }
)
_WHOLE_DRIVER: Final = frozenset(
    {
        pynvml.NVML_ERROR_UNINITIALIZED,
        pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
        pynvml.NVML_ERROR_LIBRARY_NOT_FOUND,
        pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
    }
)
_TROUBLE: Final = {pynvml.NVML_ERROR_GPU_IS_LOST: "LostGPU", pynvml.NVML_ERROR_RESET_REQUIRED: "ResetRequired"}


class GpuTrouble(Exception):
    """One GPU does not answer; `reason` is a word: LostGPU or ResetRequired."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def load(library: Path | None) -> None:
    """Loads the library that nvidia-ml-py speaks to from now on (None: the system's). It keeps one for the whole process.

    Raises InvalidInput where it cannot be loaded, or lacks a function without which nothing can be said.
    """
    name = str(library.resolve()) if library else SYSTEM_LIBRARY
    try:
        loaded = ctypes.CDLL(name)
    except OSError as error:
        raise InvalidInput(
            f"cannot load NVML: {error}; the driver's {SYSTEM_LIBRARY} must be where the loader looks, or be named by its path"
        ) from None
    missing = [needed for needed in NEEDED if not hasattr(loaded, needed)]
    if missing:
        raise InvalidInput(f"{name} lacks {', '.join(missing)}: it is no NVML, or that of a driver too old for kompakt")
    pynvml.nvmlLib = loaded
    pynvml._nvmlGetFunctionPointer_cache.clear()  # it holds functions of the library before


def start() -> str:
    """Initialises NVML; the driver's version. Raises InvalidInput with NVML's word for what is wrong."""
    try:
        pynvml.nvmlInit()
        return str(pynvml.nvmlSystemGetDriverVersion())
    except pynvml.NVMLError as error:
        raise InvalidInput(f"NVML does not start: {error}; {_advice(error.value)}") from None


def _advice(code: int) -> str:
    if code == pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH:
        return "the driver was replaced under a running plugin: restart the plugin"
    return "is the NVIDIA driver loaded, and are its devices in this container?"


def stop() -> None:
    """Lets go of NVML; errors of a driver that is gone do not matter any more."""
    with suppress(pynvml.NVMLError):
        pynvml.nvmlShutdown()


def told(call: Callable[..., T], *arguments: Any) -> T | None:
    """What NVML answers, None where the driver or the GPU does not know the question.

    Raises GpuTrouble where the GPU does not answer, InvalidInput where the whole driver does not, NVMLError otherwise.
    """
    try:
        return call(*arguments)
    except pynvml.NVMLError as error:
        if error.value in UNKNOWN_QUESTION:
            return None
        raise_trouble(error)
        raise


def raise_trouble(error: Any) -> None:
    """Raises what an NVMLError means where it concerns the whole GPU or driver, else returns."""
    if error.value in _TROUBLE:
        raise GpuTrouble(_TROUBLE[error.value]) from None
    if error.value in _WHOLE_DRIVER:
        raise InvalidInput(f"NVML stopped answering: {error}; {_advice(error.value)}") from None
