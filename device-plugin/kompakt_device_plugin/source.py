"""Where a node's link graph comes from. So far: a text description, for nodes without GPUs (demos and tests)."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from kompakt_core import contract
from kompakt_core.errors import InvalidInput
from kompakt_core.topology.describe import read_description
from kompakt_core.topology.graph import LinkGraph

_MAX_BYTES = 1 << 20  # what a ConfigMap can hold


class Source(Protocol):
    """1. read may be called at any time and is quick. 2. What is wrong is raised as InvalidInput, with a sentence."""

    name: str  # GPUTopology.spec.source

    def read(self, node: Mapping[str, Any]) -> LinkGraph: ...


class TextSource:
    """A folder (a mounted ConfigMap) whose file named by the node's label kompakt.dev/machine describes the machine."""

    name = "text"

    def __init__(self, folder: Path) -> None:
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


class NamedMachines:
    """Simulated nodes: the label kompakt.dev/machine itself is the name of a known machine, unless a folder describes it."""

    name = "text"

    def __init__(self, folder: Path | None = None) -> None:
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
