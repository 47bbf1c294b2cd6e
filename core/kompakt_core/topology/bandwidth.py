"""Bandwidth of links, one direction, in MB/s (10^6 bytes): facts and planning figures with their sources.

Per NVLink lane: `data/nvlink_generations.csv` (vendor tables, driver profiles). PCIe levels: the planning constants of
NCCL (`src/graph/topo.h`; `data/nccl_bandwidth_constants.csv`), which describe PCIe Gen3 x16 and Broadwell sockets, the
slowest of its list: a faster machine is understated on PCIe, never overstated, and the order of the levels stays right.
"""

import csv
import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Final

from kompakt_core.errors import InvalidInput
from kompakt_core.topology.graph import NVLINK_KINDS, LinkKind

_DATA = files("kompakt_core.topology") / "data"

# NVML's NVML_NVLINK_MAX_LINKS (nvidia-ml-py 13.615); no GPU of the table has more than 18.
MAX_LANES: Final = 36
MAX_LANES_OF_A_GPU: Final = 18
MAX_GENERATION: Final = 99
_PCIE_ORDER: Final = (LinkKind.PIX, LinkKind.PXB, LinkKind.PHB, LinkKind.NODE, LinkKind.SYS)


def _gigabytes_to_megabytes(text: str) -> int:
    return round(float(text) * 1000)


@cache
def _nccl() -> Mapping[str, int]:
    rows = csv.DictReader((_DATA / "nccl_bandwidth_constants.csv").read_text().splitlines())
    plain = {row["constant"]: row["gb_per_s"] for row in rows if not row["constant"].startswith(("INTEL", "PATH"))}
    return {name.split(" ")[0]: _gigabytes_to_megabytes(value) for name, value in plain.items()}


@cache
def _generations() -> Sequence[Mapping[str, str]]:
    """The rows of the table that are about NVLink."""
    rows = csv.DictReader((_DATA / "nvlink_generations.csv").read_text().splitlines())
    return [row for row in rows if row["generation"].isdecimal()]


@cache
def pcie() -> Mapping[LinkKind, int]:
    """MB/s of each PCIe level.

    PIX and PXB: NCCL's PCI_BW, 12 GB/s. PHB and NODE cross a host bridge of an Intel CPU, which costs NCCL's
    INTEL_P2P_OVERHEAD of 6/5, so 10 GB/s. SYS: the inter-socket figure BDW_QPI_BW, 6 GB/s.
    """
    switch = _nccl()["PCI_BW"]
    bridge = switch * 5 // 6
    speeds = (switch, switch, bridge, bridge, _nccl()["BDW_QPI_BW"])
    return MappingProxyType(dict(zip(_PCIE_ORDER, speeds, strict=True)))


@cache
def path_rank(kind: LinkKind) -> int:
    """How good a kind of path is, smaller is better: NCCL's order of path types (`data/nccl_bandwidth_constants.csv`).

    NVSwitch and XGMI rank as NVLink. NODE, which NCCL does not tell from PHB, stands between PHB and SYS.
    """
    lines = (_DATA / "nccl_bandwidth_constants.csv").read_text().splitlines()
    order = next(line.split(",")[1] for line in lines if line.startswith("PATH order,"))
    ranks = {word[:-1]: 10 * int(word[-1]) for word in order.split()}  # NVL1 NVB2 C2C3 PIX4 ...
    ranks |= {"NVLink": ranks["NVL"], "NVSwitch": ranks["NVL"], "XGMI": ranks["NVL"], "NODE": ranks["PHB"] + 5}
    return ranks[kind.value]


def _names(row: Mapping[str, str]) -> list[str]:
    return row["gpu"].split(" ")[0].removesuffix("-class").split("/")


def _words(model: str) -> list[str]:
    return re.split(r"[^A-Za-z0-9]+", model)


def _lane(row: Mapping[str, str]) -> int:
    # A figure that nobody has confirmed is not used: NCCL's planning figure stands in.
    column = "nccl_per_link_bw_gbs" if "unverified" in row["source"] else "per_link_gbs_each_way"
    return _gigabytes_to_megabytes(row[column])


# Not in the table: Turing's bridges are of the V100's second generation, 25 GB/s a lane.
_TURING: Final = {"RTX8000": 2}


@cache
def generation_of_model(model: str) -> int:
    """NVLink's generation of a model such as A100 or NVIDIA A100-SXM4-80GB; 0 for one that the table lacks."""
    known = _TURING | {name: int(row["generation"]) for row in _generations() for name in _names(row)}
    return next((known[word] for word in _words(model) if word in known), 0)


@cache
def lane_of(generation: int, model: str = "") -> int:
    """MB/s of one lane of an NVLink generation: that of the model, or of the generation's main GPU where that is not known.

    A generation newer than the table's counts as its last. Raises InvalidInput where generation is not from 1 to 99.
    """
    if not 1 <= generation <= MAX_GENERATION:
        raise InvalidInput(f"NVLink generation {generation}: must be from 1 to {MAX_GENERATION}")
    last = max(int(row["generation"]) for row in _generations() if int(row["generation"]) <= generation)
    rows = [row for row in _generations() if int(row["generation"]) == last]
    return _lane(next((row for row in rows if set(_names(row)) & set(_words(model))), rows[0]))


def generation_by_count(lanes: int) -> int:
    """NVLink's generation when only the lanes per GPU are known, as in `topo -m` text, which names none.

    18 lanes: 4, H100's (B200 has as many and is faster: understated). 7 to 17: 3, A100's. Up to 6: 2, V100's.
    It gives a factor common to all links of the machine: it moves values, hardly ever a choice.
    """
    if lanes >= MAX_LANES_OF_A_GPU:
        return 4
    return 3 if lanes > 6 else 2


def of(kind: LinkKind, lanes: int, generation: int, model: str = "") -> int:
    """MB/s of a link of a kind by the planning figures; `generation` is NVLink's, `model` the GPU's where it is known.

    Raises InvalidInput for XGMI and C2C, of which no table holds a figure: who describes such a link must state it.
    """
    if kind in NVLINK_KINDS:
        return lanes * lane_of(generation, model)
    if kind not in pcie():
        raise InvalidInput(f"no published bandwidth for {kind}: state the link's gigabytesPerSecond")
    return pcie()[kind]
