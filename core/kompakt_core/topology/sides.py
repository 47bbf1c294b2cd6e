"""What joins a pair, judged from both of its sides: one rule for every reader."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from kompakt_core.errors import InvalidInput
from kompakt_core.ids import GpuIndex
from kompakt_core.topology import bandwidth
from kompakt_core.topology.graph import NVLINK_KINDS, Link, LinkKind, PeerAccess

_BUS_ID: Final = re.compile(r"([0-9a-fA-F]{1,8}:)?([0-9a-fA-F]{1,2}):([0-9a-fA-F]{1,2})\.([0-7])")


@dataclass(frozen=True, slots=True)
class Path:
    """What one side says about its link to the other; lanes are 0 for PCIe kinds."""

    kind: LinkKind
    lanes: int = 0


@dataclass(frozen=True, slots=True)
class Side:
    """One GPU's active NVLink lanes by what is at their other end: GPUs by bus id (as `bus_id` writes it), or switches."""

    bus_id: str
    to_gpus: Mapping[str, int] = field(default_factory=dict)
    to_switches: int = 0
    clique: str = ""


def bus_id(text: str) -> str:
    """A PCI bus id in one spelling, 0000:1a:00.0: NVML writes the domain with four or with eight digits.

    Raises InvalidInput where the text is none.
    """
    found = _BUS_ID.fullmatch(text.strip().strip("\0"))
    if not found:
        raise InvalidInput(f"{text[:32]!r} is no PCI bus id; they look like 0000:1a:00.0")
    domain, bus, device, function = found.groups()
    return f"{int((domain or '0:')[:-1], 16):04x}:{int(bus, 16):02x}:{int(device, 16):02x}.{function}"


def nvlink_path(a: Side, b: Side, *, reachable: bool) -> tuple[Path | None, bool]:
    """(the NVLink path of a pair or None, whether the two sides disagree).

    Lanes straight to the other GPU are counted on both sides and the smaller number counts. Without any, two GPUs that
    both reach switches are joined by them if the driver says so (`reachable`: P2P status of NVLink is OK) and if they
    are of one clique: lanes to a switch alone do not tell who else is behind it (partitions of a shared fabric).
    """
    there, back = a.to_gpus.get(b.bus_id, 0), b.to_gpus.get(a.bus_id, 0)
    if there or back:
        lanes = min(there, back)
        return (Path(LinkKind.NVLINK, lanes) if lanes else None), there != back
    lanes = min(a.to_switches, b.to_switches)
    joined = lanes > 0 and reachable and a.clique == b.clique
    return (Path(LinkKind.NVSWITCH, lanes) if joined else None), False


def weaker(there: Path, back: Path, generation: int) -> tuple[Path, bool]:
    """(the weaker of what the two sides say, whether they disagree)."""

    def strength(path: Path) -> tuple[int, int]:
        return bandwidth.of(path.kind, path.lanes, generation), -bandwidth.path_rank(path.kind)

    return min(there, back, key=strength), there != back


def link_of(a: int, b: int, path: Path, generation: int, access: PeerAccess = PeerAccess.UNTOLD, model: str = "") -> Link:
    """The link of the pair a < b with its planning bandwidth; `generation` is NVLink's, `model` the GPUs' where it is known."""
    speed = bandwidth.of(path.kind, path.lanes, generation, model)
    own = generation if path.kind in NVLINK_KINDS else 0
    return Link(GpuIndex(a), GpuIndex(b), path.kind, path.lanes, speed, own, access)
