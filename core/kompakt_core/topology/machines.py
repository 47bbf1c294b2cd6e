"""Known machines: `data/topo_matrices.json` (matrices that real machines printed) and `data/machines/*.yaml`.

Each names the public report it was taken from, and says what had to be assumed.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any, Final

from kompakt_core.errors import InvalidInput
from kompakt_core.topology import bandwidth
from kompakt_core.topology.access import parse_access, with_access
from kompakt_core.topology.graph import LinkGraph, PeerAccess
from kompakt_core.topology.handwritten import about, parse_handwritten
from kompakt_core.topology.matrix import parse_matrix, text_uuid

_DATA: Final = files("kompakt_core.topology") / "data"

# Kind of GPU by machine: it gives the generation of NVLink. Machines not named here have no NVLink; the reports do not
# tell their GPUs' kind.
_GPU_OF: Final = {
    "dgx1-v100": "V100",
    "dgx1-v100-4nic": "V100",
    "dgx1-p100": "P100",
    "dgx2-16xv100": "V100",
    "dgx-a100-8": "A100",
    "h800-8": "H800",
    "hgx-h100-8": "H100",
    "h100-sxm-4": "H100",
    "a100-sxm-4": "A100",
    "gb200-tray-4": "GB200",
    "b200-8-gpu2-off-fabric": "B200",
    "a100-pcie-8-bridge-pairs": "A100",
    "a100-pcie-4-one-bridge": "A100",
    "a100-pcie-4-two-bridges-4-numa": "A100",
    "rtx8000-4": "RTX8000",
    "l40s-4": "L40S",
    "rtx5090-2": "RTX5090",
}


@dataclass(frozen=True, slots=True)
class KnownMachine:
    """A known machine: its name, number and kind of GPUs ("" unknown), where it was published, and what was assumed.

    `text` is what its reader takes: as `nvidia-smi topo -m` prints it (and `topo -p2p r` after it), or YAML.
    """

    name: str
    gpus: int
    model: str
    source: str
    text: str
    note: str = ""
    yaml: bool = False

    def graph(self, uuids: Callable[[int], str] | None = None) -> LinkGraph:
        """The link graph; `uuids` names the GPU at an index (default: stable made-up UUIDs of this machine)."""
        name = uuids or (lambda index: text_uuid(self.name, index))
        if self.yaml:
            return parse_handwritten(self.text, uuids=name)
        links, _, access = self.text.partition("\n\n")
        generation = bandwidth.generation_of_model(self.model)
        graph = parse_matrix(links, uuids=name, generation=generation, model=self.model)
        return with_access(graph, parse_access(access)) if access else graph


def _machines() -> dict[str, KnownMachine]:
    document: Any = json.loads((_DATA / "topo_matrices.json").read_text())
    known = [_printed(entry) for entry in document["matrices"]]
    known += [_with_access(entry) for entry in document["p2p_matrices"]]
    known += [_written(path.name.removesuffix(".yaml"), path.read_text()) for path in (_DATA / "machines").iterdir()]
    return {machine.name: machine for machine in sorted(known, key=lambda machine: machine.name)}


def _printed(entry: Mapping[str, Any]) -> KnownMachine:
    name = entry["id"]
    note = str(entry.get("note", "")) or (
        "no printed output: derived from another library's test node" if "derived" in entry else ""
    )
    return KnownMachine(name, len(entry["matrix"]), _GPU_OF.get(name, ""), entry["source"], _as_text(entry), note)


def _with_access(entry: Mapping[str, Any]) -> KnownMachine:
    size = len(entry["topo"])
    head = "\t".join(["", *(f"GPU{i}" for i in range(size))])
    rows = ["\t".join([f"GPU{i}", *row]) for i, row in enumerate(entry["p2p_read"])]
    text = _as_text({"matrix": entry["topo"]}) + "\n" + "\n".join([head, *rows]) + "\n"
    denied = sorted({cell for row in entry["p2p_read"] for cell in row if cell not in ("X", PeerAccess.OK)})
    note = f"peers cannot read each other's memory ({', '.join(denied)})" if denied else ""
    return KnownMachine(entry["id"], size, _GPU_OF.get(entry["id"], ""), entry["source"], text, note)


def _written(name: str, text: str) -> KnownMachine:
    said = about(text)
    return KnownMachine(name, said.gpus, said.model, said.source, text, said.note, yaml=True)


def _as_text(entry: Mapping[str, Any]) -> str:
    """An entry of the file written as the tool prints it, so that known machines take the same path as pasted text."""
    matrix: Sequence[Sequence[str]] = entry["matrix"]
    size = len(matrix)
    nics: Mapping[str, list[str]] = {name: cells for name, cells in entry.get("nic", {}).items() if len(cells) == size}
    cpus = _padded(entry.get("cpu_affinity", []), size, "")
    numa = _padded(entry.get("numa", [entry["numa_first4"]] * 4 if "numa_first4" in entry else []), size, "N/A")
    head = [*(f"GPU{i}" for i in range(size)), *nics, "CPU Affinity", "NUMA Affinity"]
    lines = ["\t".join(["", *head])]
    for i, row in enumerate(matrix):
        lines.append("\t".join([f"GPU{i}", *row, *(cells[i] for cells in nics.values()), cpus[i], numa[i]]))
    return "\n".join(lines) + "\n"


def _padded(values: Sequence[object], size: int, filler: str) -> list[str]:
    return [str(value) for value in values] + [filler] * (size - len(values))


MACHINES: Final[Mapping[str, KnownMachine]] = MappingProxyType(_machines())


def known_machine(name: str) -> KnownMachine:
    """The known machine of this name; InvalidInput lists the names there are."""
    if name not in MACHINES:
        raise InvalidInput(f"unknown machine {name!r}; known are {', '.join(sorted(MACHINES))}")
    return MACHINES[name]


@cache
def machine(name: str) -> LinkGraph:
    """The link graph of a known machine, e.g. dgx1-v100. Raises InvalidInput for an unknown name."""
    return known_machine(name).graph()
