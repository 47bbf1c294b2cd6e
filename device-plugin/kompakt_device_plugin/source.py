"""Where a node's link graph comes from: a text description (nodes without GPUs: demos and tests), or NVML."""

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, Protocol

from kompakt_core import contract
from kompakt_core.errors import InvalidInput
from kompakt_core.ids import GpuUuid
from kompakt_core.topology.describe import read_description
from kompakt_core.topology.graph import LinkGraph

_MAX_BYTES = 1 << 20  # what a ConfigMap can hold
SOURCES: Final = ("text", "nvml")


class ChangeKind(StrEnum):
    """What happened to a GPU."""

    XID = "XID"  # the driver reported a critical error that is the GPU's fault, not the application's
    ECC = "ECC"  # memory that cannot be corrected or remapped
    LOST = "Lost"  # fell off the bus, or no longer answers
    FABRIC = "Fabric"  # joined or left the NVLink fabric, or its fabric turned unhealthy
    SICK = "Unhealthy"  # unhealthy for another reason, which the message tells
    LINKS = "Links"  # what joins the node's GPUs is other than before
    WELL = "Well"  # a GPU that was unhealthy is healthy again


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that happened. `uuid` is empty where it concerns the whole node; `xid` is 0 unless kind is XID."""

    kind: ChangeKind
    uuid: GpuUuid
    message: str
    xid: int = 0


class TopologySource(Protocol):
    """A reader of one node's GPUs.

    1. read may be called at any time by any thread and is quick: it answers what is known. 2. What is wrong with the node
    as a whole is raised by read as InvalidInput, with a sentence; a later read may succeed. 3. What is wrong with single
    GPUs and links stands in the graph. 4. wait is called by one thread only; after it answered changes, read shows them.
    5. After close, wait answers at once.
    """

    name: str  # GPUTopology.spec.source
    driver_version: str  # GPUTopology.spec.driverVersion; empty where there is no driver

    def read(self, node: Mapping[str, Any]) -> LinkGraph: ...

    def wait(self, timeout: float) -> tuple[Change, ...]:
        """What happened, as soon as something does; empty after `timeout` seconds without anything."""

    def busy(self, uuid: GpuUuid) -> bool:
        """Whether the driver sees a process on this GPU at this moment; False where nobody can tell. Quick."""

    def minor(self, uuid: GpuUuid) -> int:
        """The number in a GPU's device file (/dev/nvidia0). Quick. Raises InvalidInput where nobody knows it."""

    def close(self) -> None: ...


class Quiet:
    """A source to which nothing happens between two reads."""

    driver_version = ""

    def __init__(self) -> None:
        self._closed = threading.Event()

    def wait(self, timeout: float) -> tuple[Change, ...]:
        """Nothing, after `timeout` seconds or when closed."""
        self._closed.wait(timeout)
        return ()

    def busy(self, uuid: GpuUuid) -> bool:
        """There is no GPU that could be."""
        return False

    def minor(self, uuid: GpuUuid) -> int:
        """There is no device file: raises InvalidInput."""
        raise InvalidInput(f"{uuid} is described by a text: it has no device file")

    def close(self) -> None:
        """Ends a wait."""
        self._closed.set()


class TextSource(Quiet):
    """A folder (a mounted ConfigMap) whose file named by the node's label kompakt.dev/machine describes the machine."""

    name = "text"

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder
        self._read: tuple[str, str, LinkGraph] | None = None  # node, text and what they mean: most calls find no change

    def read(self, node: Mapping[str, Any]) -> LinkGraph:
        """The node's link graph; raises InvalidInput where label, file or description are missing or wrong."""
        name = node["metadata"]["name"]
        text = self._text((node["metadata"].get("labels") or {}).get(contract.LABEL_MACHINE))
        if self._read is None or self._read[:2] != (name, text):
            self._read = (name, text, read_description(text, name))
        return self._read[2]

    def _text(self, machine: str | None) -> str:
        if not machine:
            raise InvalidInput(
                f"the node has no label {contract.LABEL_MACHINE}; it names the file in {self._folder} that describes it"
            )
        if Path(machine).name != machine:
            raise InvalidInput(f"label {contract.LABEL_MACHINE}={machine!r} is no file name")
        path = self._folder / machine
        try:
            return read_limited(path)
        except FileNotFoundError:
            there = ", ".join(sorted(file.name for file in self._folder.glob("[!.]*"))) or "nothing"
            raise InvalidInput(f"no description {machine!r} in {self._folder}; there is {there}") from None
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidInput(f"cannot read {path}: {error}") from None


class NamedMachines(Quiet):
    """Simulated nodes: the label kompakt.dev/machine itself is the name of a known machine, unless a folder describes it."""

    name = "text"

    def __init__(self, folder: Path | None = None) -> None:
        super().__init__()
        self._folder = folder

    def read(self, node: Mapping[str, Any]) -> LinkGraph:
        """The node's link graph; raises InvalidInput as TextSource does."""
        machine = (node["metadata"].get("labels") or {}).get(contract.LABEL_MACHINE, "")
        if self._folder and machine and (self._folder / machine).is_file():
            return TextSource(self._folder).read(node)
        return read_description(machine, node["metadata"]["name"])


def read_limited(path: Path) -> str:
    """The text of a file; raises InvalidInput above 1 MiB, OSError and UnicodeDecodeError as reading does."""
    with path.open("rb") as file:
        data = file.read(_MAX_BYTES + 1)
    if len(data) > _MAX_BYTES:
        raise InvalidInput(f"{path} is larger than {_MAX_BYTES} bytes; a description is a machine's name or a link matrix")
    return data.decode()


def open_source(
    name: str, *, machines: Path, library: Path | None = None, skip_xids: str = "", heed_xids: str = ""
) -> TopologySource:
    """The source of this name: text (descriptions in the folder `machines`), or nvml (`library`: another libnvidia-ml than the
    system's; XIDs as `verdict.xid_rules` reads them).

    Raises InvalidInput for an unknown name and unreadable XIDs: those are mistakes of whoever starts the process. A library that
    cannot be loaded or lacks functions is none: read raises it and tries again, since a driver may come later.
    """
    if name == "text":
        return TextSource(machines)
    if name == "nvml":
        from kompakt_device_plugin.nvml.gpu_health import xid_rules
        from kompakt_device_plugin.nvml.source import NvmlSource  # not every node needs NVML

        return NvmlSource(library, rules=xid_rules(skip_xids, heed_xids))
    raise InvalidInput(f"unknown source {name!r}; known are {' and '.join(SOURCES)}")
