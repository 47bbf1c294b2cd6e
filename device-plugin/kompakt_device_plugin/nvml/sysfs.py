"""What Linux says of the node: NUMA nodes of PCI devices, which of them have cores, network cards and their ways to GPUs."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kompakt_core.topology.graph import LinkKind, Nic

SYSFS: Final = Path("/sys")
_FUNCTION: Final = re.compile(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_RATE: Final = re.compile(r"([0-9]{1,5}(?:\.[0-9])?) Gb/sec")
MAX_NICS: Final = 64


@dataclass(frozen=True, slots=True)
class Sysfs:
    """A mounted sysfs. Nothing here raises: what cannot be read is unknown."""

    root: Path = SYSFS

    def numa_node(self, bus_id: str) -> int:
        """NUMA node of a PCI device; -1 where unknown. A node without cores is none: on Grace, GPU memory is a node."""
        node = _integer(self._device(bus_id) / "numa_node")
        return node if self.has_cores(node) else -1

    def has_cores(self, node: int) -> bool:
        """Whether a NUMA node has cores."""
        return node >= 0 and bool(_text(self.root / f"devices/system/node/node{node}/cpulist"))

    def nics(self, gpus: Sequence[str]) -> tuple[Nic, ...]:
        """Network cards by name, with the kind of way to each GPU of these bus ids: RDMA cards, then others of known speed.

        Virtual functions are left out: they share their card's bandwidth.
        """
        found: dict[Path, Nic] = {}
        for name, device, speed in [*self._rdma(), *self._ethernet()]:
            place = _pci(device)
            if place and speed >= 0 and place[-1] not in found and not (device / "physfn").exists():
                paths = tuple(self._way(place, self._device(gpu)) for gpu in gpus)
                found[place[-1]] = Nic(name, _cores(self, place[-1]), speed, paths)
        return tuple(sorted(found.values(), key=lambda nic: (len(nic.name), nic.name))[:MAX_NICS])

    def _device(self, bus_id: str) -> Path:
        return self.root / "bus/pci/devices" / (bus_id or "none")

    def _rdma(self) -> Iterator[tuple[str, Path, int]]:
        for card in _entries(self.root / "class/infiniband"):
            rates = [_RATE.match(_text(port / "rate")) for port in _entries(card / "ports")]
            speed = sum(round(float(rate[1]) * 1000 / 8) for rate in rates if rate)
            yield card.name, (card / "device").resolve(), speed

    def _ethernet(self) -> Iterator[tuple[str, Path, int]]:
        for card in _entries(self.root / "class/net"):
            speed = _integer(card / "speed")
            yield card.name, (card / "device").resolve(), speed // 8 if speed > 0 else -1

    def _way(self, nic: Sequence[Path], device: Path) -> LinkKind:
        """As `nvidia-smi topo -m` words it: below one PCIe switch PIX, below several PXB, one host bridge PHB, one NUMA node
        NODE, else SYS.
        """
        gpu = _pci(device.resolve())
        if not gpu or nic[0].parent != gpu[0].parent:
            near = bool(gpu) and _cores(self, nic[-1]) == _cores(self, gpu[-1]) >= 0
            return LinkKind.NODE if near else LinkKind.SYS
        shared = sum(a == b for a, b in zip(nic, gpu, strict=False))
        if not shared:
            return LinkKind.PHB
        return LinkKind.PIX if max(len(nic), len(gpu)) - shared <= 2 else LinkKind.PXB


def _cores(sysfs: Sysfs, device: Path) -> int:
    return sysfs.numa_node(device.name)


def _pci(device: Path) -> list[Path]:
    """The PCI functions on the way from the host bridge to a device, itself last; empty for what is no PCI device."""
    return [part for part in (*reversed(device.parents), device) if _FUNCTION.fullmatch(part.name)]


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _integer(path: Path) -> int:
    text = _text(path)
    return int(text) if re.fullmatch(r"[0-9]{1,9}", text) else -1
