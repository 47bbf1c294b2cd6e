"""Bandwidth of links, one direction, in MB/s (10^6 bytes): facts and planning figures with their sources.

Per NVLink lane: `data/nvlink_generations.csv` (vendor tables, driver profiles). PCIe levels: the planning constants of
NCCL (`src/graph/topo.h`; `data/nccl_bandwidth_constants.csv`), which describe PCIe Gen3 x16 and Broadwell sockets, the
slowest of its list: a faster machine is understated on PCIe, never overstated, and the order of the levels stays right.
"""

import csv
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Final

from kompakt_core.topology.graph import LinkKind

_DATA = files("kompakt_core.topology") / "data"

# NVML's NVML_NVLINK_MAX_LINKS (nvidia-ml-py 13.615); no GPU of the table has more than 18.
MAX_LANES: Final = 36
MAX_LANES_OF_A_GPU: Final = 18


def _gigabytes_to_megabytes(text: str) -> int:
    return round(float(text) * 1000)


@cache
def _nccl() -> Mapping[str, int]:
    rows = csv.DictReader((_DATA / "nccl_bandwidth_constants.csv").read_text().splitlines())
    plain = {row["constant"]: row["gb_per_s"] for row in rows if not row["constant"].startswith(("INTEL", "PATH"))}
    return {name.split(" ")[0]: _gigabytes_to_megabytes(value) for name, value in plain.items()}


@cache
def pcie() -> Mapping[LinkKind, int]:
    """MB/s of each PCIe level.

    PIX and PXB: NCCL's PCI_BW, 12 GB/s. PHB and NODE cross a host bridge of an Intel CPU, which costs NCCL's
    INTEL_P2P_OVERHEAD of 6/5, so 10 GB/s. SYS: the inter-socket figure BDW_QPI_BW, 6 GB/s.
    """
    switch = _nccl()["PCI_BW"]
    bridge = switch * 5 // 6
    socket = _nccl()["BDW_QPI_BW"]
    return MappingProxyType(
        {
            LinkKind.PIX: switch,
            LinkKind.PXB: switch,
            LinkKind.PHB: bridge,
            LinkKind.NODE: bridge,
            LinkKind.SYS: socket,
        }
    )


@cache
def lane(gpu: str) -> int:
    """MB/s of one NVLink lane of a kind of GPU, by its name in the table of generations: P100, V100, A100, H100, ...

    Raises KeyError for a name that the table does not hold.
    """
    for row in csv.DictReader((_DATA / "nvlink_generations.csv").read_text().splitlines()):
        names = row["gpu"].split(" ")[0].split("/")
        if gpu in names and row["nvml_version_enum"]:
            return _gigabytes_to_megabytes(row["per_link_gbs_each_way"])
    raise KeyError(gpu)


def lane_by_count(lanes: int) -> int:
    """MB/s of one lane when only the lanes per GPU are known, as in `topo -m` text, which names no generation.

    18 lanes: H100's figure (B200 has as many and is faster: understated). 7 to 17: A100's. Up to 6: V100's.
    The factor is common to all links of the machine: it moves values, hardly ever a choice.
    """
    if lanes >= 18:
        return lane("H100")
    return lane("A100") if lanes > 6 else lane("V100")
