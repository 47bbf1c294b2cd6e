"""Known machines: link matrices printed by real ones, read from the packaged `data/topo_matrices.json`.

Each entry names the public report it was taken from. Two AMD machines of the file (mi300x-8, amd-4-pcie) are left
out: their reports give weights but no bandwidth.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import combinations
from types import MappingProxyType
from typing import Any, Final

from kompakt_core.errors import InvalidInput
from kompakt_core.ids import GpuIndex, GpuUuid
from kompakt_core.topology import bandwidth
from kompakt_core.topology.graph import Gpu, Link, LinkGraph, LinkKind
from kompakt_core.topology.matrix import parse_matrix, text_uuid

# Kind of GPU by machine: it gives the bandwidth of an NVLink lane. Turing (RTX 8000) has the V100's second NVLink
# generation, 25 GB/s a lane. Machines not named here have no NVLink; their GPUs' kind is not told in the reports.
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
}
_LANE_OF: Final = {"RTX8000": "V100"}


@dataclass(frozen=True, slots=True)
class Machine:
    """A known machine: its name, number and kind of GPUs ("" unknown), and where its matrix was published."""

    name: str
    gpus: int
    model: str
    source: str
    text: str  # as `nvidia-smi topo -m` prints it; "" for the AMD machine

    def graph(self, uuids: Callable[[int], str] | None = None) -> LinkGraph:
        """The link graph; `uuids` names the GPU at an index (default: stable made-up UUIDs of this machine)."""
        name = uuids or (lambda index: text_uuid(self.name, index))
        if not self.text:
            return _two_hives(name)
        generation = bandwidth.generation_of(_LANE_OF.get(self.model, self.model)) if "NV" in self.text else 0
        return parse_matrix(self.text, uuids=name, generation=generation, model=self.model)


@cache
def _document() -> Any:
    return json.loads((files("kompakt_core.topology") / "data" / "topo_matrices.json").read_text())


def _machines() -> dict[str, Machine]:
    known = {
        entry["id"]: Machine(entry["id"], len(entry["matrix"]), _GPU_OF.get(entry["id"], ""), entry["source"], _as_text(entry))
        for entry in _document()["matrices"]
    }
    hives = _entry_two_hives()
    known[hives["id"]] = Machine(hives["id"], len(hives["max_bw_mbs"]), "MI210", hives["source"], "")
    return known


def _entry_two_hives() -> Mapping[str, Any]:
    return next(entry for entry in _document()["amd"] if "max_bw_mbs" in entry)


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


def _two_hives(name: Callable[[int], str]) -> LinkGraph:
    """MI210: two hives of four. XGMI bandwidth as the driver reports it; the report does not tell the PCIe level
    between hives, so the weakest, SYS, is taken.
    """
    speeds: Sequence[Sequence[int]] = _entry_two_hives()["max_bw_mbs"]
    links = []
    for a, b in combinations(range(len(speeds)), 2):
        kind, lanes = (LinkKind.XGMI, 1) if speeds[a][b] else (LinkKind.SYS, 0)
        links.append(Link(GpuIndex(a), GpuIndex(b), kind, lanes, speeds[a][b] or bandwidth.pcie()[LinkKind.SYS]))
    gpus = tuple(Gpu(GpuIndex(i), GpuUuid(name(i)), model="MI210") for i in range(len(speeds)))
    return LinkGraph(gpus, tuple(links))


MACHINES: Final[Mapping[str, Machine]] = MappingProxyType(_machines())


def known_machine(name: str) -> Machine:
    """The known machine of this name; InvalidInput lists the names there are."""
    if name not in MACHINES:
        raise InvalidInput(f"unknown machine {name!r}; known are {', '.join(sorted(MACHINES))}")
    return MACHINES[name]


@cache
def machine(name: str) -> LinkGraph:
    """The link graph of a known machine, e.g. dgx1-v100. Raises InvalidInput for an unknown name."""
    return known_machine(name).graph()
