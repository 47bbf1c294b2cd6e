"""Entries of `links` in a hand-written machine: one kind of link and the pairs it joins."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final

from kompakt_core.errors import InvalidInput
from kompakt_core.ids import GpuIndex
from kompakt_core.schema.words import FieldError, kind_of
from kompakt_core.topology import bandwidth
from kompakt_core.topology.fields import Fields
from kompakt_core.topology.graph import FABRIC_KINDS, NVLINK_KINDS, Link, LinkKind, PeerAccess

Pair = tuple[GpuIndex, GpuIndex]
MAX_GIGABYTES: Final = 1_000_000
_KEYS: Final = (
    "kind",
    "lanes",
    "nvlinkGeneration",
    "gigabytesPerSecond",
    "peerAccess",
    "uneven",
    "pairs",
    "among",
)
_KINDS: Final = {kind.value: kind for kind in LinkKind} | {"SOC": LinkKind.SYS}


@dataclass(frozen=True, slots=True)
class LinkEntry:
    """One kind of link. `kind` None is `topo -m`'s NV<lanes>, which tells NVLink from NVSwitch by the number of lanes.

    `megabytes_per_second` -1 takes the planning figure, `pairs` None stands for all pairs not named elsewhere.
    """

    path: str
    kind: LinkKind | None
    lanes: int
    generation: int
    megabytes_per_second: int
    access: PeerAccess
    uneven: bool
    pairs: tuple[Pair, ...] | None

    def link(self, pair: Pair, generation: int, through_switch: bool, model: str) -> Link:
        """The link of a pair; `generation` is the machine's NVLink generation. Raises FieldError."""
        kind = self.kind or (LinkKind.NVSWITCH if through_switch else LinkKind.NVLINK)
        own = 0 if kind not in NVLINK_KINDS else self.generation or generation
        try:
            speed = self.megabytes_per_second if self.megabytes_per_second >= 0 else bandwidth.of(kind, self.lanes, own, model)
        except InvalidInput as error:
            raise FieldError(self.path, str(error)) from None
        return Link(*pair, kind, self.lanes, speed, own, self.access)


def read_entry(item: Fields, size: int) -> LinkEntry:
    """One entry of `links` on a machine of `size` GPUs. Raises FieldError."""
    item.only(_KEYS)
    kind, lanes = _kind(item)
    generation = item.number("nvlinkGeneration", 0)
    if generation > bandwidth.MAX_GENERATION:
        raise item.wrong("nvlinkGeneration", f"must be from 1 to {bandwidth.MAX_GENERATION}")
    access = item.word("peerAccess", PeerAccess, "")
    return LinkEntry(item.path, kind, lanes, generation, _speed(item), access, item.flag("uneven"), _pairs(item, size))


def _kind(item: Fields) -> tuple[LinkKind | None, int]:
    word = item.text("kind")
    short = re.fullmatch(r"NV([0-9]{1,2})", word)
    if not short and word not in _KINDS:
        raise item.wrong("kind", f"unknown link {word[:32]!r}; known are NV<lanes>, {', '.join(_KINDS)}")
    kind = None if short else _KINDS[word]
    fabric = kind is None or kind in FABRIC_KINDS
    lanes = item.number("lanes", int(short[1]) if short else 1 if kind in (LinkKind.XGMI, LinkKind.C2C) else 0)
    if not (1 if fabric else 0) <= lanes <= (bandwidth.MAX_LANES if fabric else 0):
        right = f"1 to {bandwidth.MAX_LANES} are possible" if fabric else "PCIe has none"
        raise item.wrong("lanes", f"{word} with {lanes} lanes; {right}")
    return kind, lanes


def _speed(item: Fields) -> int:
    found = item.value.get("gigabytesPerSecond")
    if found is None:
        return -1
    if isinstance(found, bool) or not isinstance(found, int | float):
        raise item.wrong("gigabytesPerSecond", f"expected a number, found {kind_of(found)}")
    if not 0 <= found <= MAX_GIGABYTES:
        raise item.wrong("gigabytesPerSecond", f"must be from 0 to {MAX_GIGABYTES}")
    return round(found * 1000)


def _pairs(item: Fields, size: int) -> tuple[Pair, ...] | None:
    if "pairs" not in item.value and "among" not in item.value:
        return None
    words = item.values("pairs", 4096)
    pairs = [_pair(item, f"pairs[{i}]", word, size) for i, word in enumerate(words)]
    members = item.values("among", 64)
    for i, gpu in enumerate(members):
        if isinstance(gpu, bool) or not isinstance(gpu, int) or not 0 <= gpu < size or gpu in members[:i]:
            raise item.wrong(f"among[{i}]", f"expected a GPU from 0 to {size - 1}, each once")
    pairs += [(GpuIndex(a), GpuIndex(b)) for a, b in combinations(sorted(members), 2)]
    return tuple(pairs)


def _pair(item: Fields, name: str, word: object, size: int) -> Pair:
    found = re.fullmatch(r"([0-9]{1,2})-([0-9]{1,2})", word) if isinstance(word, str) else None
    a, b = sorted((int(found[1]), int(found[2]))) if found else (0, 0)
    if a == b or b >= size:
        raise item.wrong(name, f"expected two GPUs below {size} such as 0-1, found {str(word)[:32]!r}")
    return GpuIndex(a), GpuIndex(b)


def assigned(top: Fields, entries: Sequence[LinkEntry], size: int) -> dict[Pair, LinkEntry]:
    """Which entry each pair belongs to. Raises FieldError where a pair is named twice or not at all."""
    table: dict[Pair, LinkEntry] = {}
    for entry in entries:
        for pair in entry.pairs or ():
            if pair in table:
                raise FieldError(entry.path, f"GPUs {pair[0]} and {pair[1]} are joined by an entry before already")
            table[pair] = entry
    rest = [entry for entry in entries if entry.pairs is None]
    if len(rest) > 1:
        raise FieldError(rest[1].path, "names no pairs; only one entry may stand for all other pairs")
    for a, b in combinations(range(size), 2):
        pair = (GpuIndex(a), GpuIndex(b))
        if pair in table:
            continue
        if not rest:
            raise top.wrong("links", f"nothing joins GPUs {a} and {b}; an entry without pairs, such as {{kind: SYS}}, does")
        table[pair] = rest[0]
    return table


def switched(table: dict[Pair, LinkEntry], size: int) -> list[bool]:
    """Whether each GPU has more NV<lanes> with the others than any GPU has: then a switch is between them."""
    lanes = [0] * size
    for (a, b), entry in table.items():
        if entry.kind is None:
            lanes[a] += entry.lanes
            lanes[b] += entry.lanes
    return [count > bandwidth.MAX_LANES_OF_A_GPU for count in lanes]
