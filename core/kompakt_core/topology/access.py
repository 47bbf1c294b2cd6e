"""Reader of `nvidia-smi topo -p2p`: which GPUs may read each other's memory, and what follows for their links."""

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from typing import Final

from kompakt_core.errors import InvalidInput
from kompakt_core.topology import bandwidth
from kompakt_core.topology.cells import Cell, cells_of, check_gpu_columns, headers, lines_of
from kompakt_core.topology.graph import FABRIC_KINDS, Link, LinkGraph, LinkKind, PeerAccess

_TABLE: Final = "P2P matrix"
_WORDS: Final = {word.value: word for word in PeerAccess if word}
Access = tuple[tuple[PeerAccess, ...], ...]  # n x n, OK on the diagonal


def parse_access(text: str) -> Access:
    """The matrix that `nvidia-smi topo -p2p` prints for any capability (r, w, n, a, p).

    Raises InvalidInput with line and column.
    """
    lines = lines_of(text, _TABLE)
    start = next(headers(lines), None)
    if start is None:
        raise InvalidInput(f"{_TABLE}: no header line beginning with GPU0; give the whole output of `nvidia-smi topo -p2p r`")
    columns = cells_of(lines[start], start + 1, _TABLE)
    check_gpu_columns(columns)
    rows = _rows(lines, start + 1, len(columns))
    if len(rows) < len(columns):
        raise Cell("", len(lines), 1, _TABLE).wrong(f"the header names {len(columns)} GPUs but only {len(rows)} rows follow")
    return tuple(rows)


def _rows(lines: Sequence[str], start: int, size: int) -> list[tuple[PeerAccess, ...]]:
    rows: list[tuple[PeerAccess, ...]] = []
    for number, line in enumerate(lines[start:], start=start + 1):
        cells = cells_of(line, number, _TABLE)
        if not cells:
            if rows:
                break  # a blank line ends the matrix, the legend follows
            continue
        if len(rows) == size:
            break
        rows.append(_row(cells, len(rows), size))
    return rows


def _row(cells: Sequence[Cell], index: int, size: int) -> tuple[PeerAccess, ...]:
    if cells[0].text != f"GPU{index}":
        raise cells[0].wrong(f"found {cells[0].text[:32]!r} where the row of GPU{index} is due")
    if len(cells) != size + 1:
        raise cells[-1].wrong(f"the row of GPU{index} ends here with {len(cells) - 1} of {size} columns")
    return tuple(_status(cell, index, other) for other, cell in enumerate(cells[1:]))


def _status(cell: Cell, index: int, other: int) -> PeerAccess:
    if index == other and cell.text == "X":
        return PeerAccess.OK
    if index == other or cell.text not in _WORDS:
        right = "X" if index == other else ", ".join(_WORDS)
        raise cell.wrong(f"found {cell.text[:32]!r} between GPU{index} and GPU{other}; expected {right}")
    return _WORDS[cell.text]


def is_access_row(row: str) -> bool:
    """Whether a row belongs to a P2P matrix: a matrix of links has none of its words."""
    return bool(re.match(r"\s*GPU[0-9]+\s", row)) and any(word in _WORDS for word in row.split()[1:])


def with_access(graph: LinkGraph, access: Access) -> LinkGraph:
    """The graph in which each pair says whether it may read each other's memory; the worse of its two directions counts.

    `access` is that of reading (`topo -p2p r`): that of NVLink (`n`) denies pairs which reach each other over PCIe.

    A pair that may not goes through the memory of the host, which crosses a host bridge: nothing better than PHB is left
    of its link (NCCL falls back to shared memory alike). Raises InvalidInput when the numbers of GPUs differ.
    """
    if len(access) != graph.size:
        raise InvalidInput(f"{_TABLE}: {len(access)} GPUs, but the matrix of links has {graph.size}")
    links = []
    for link, (a, b) in zip(graph.links, combinations(range(graph.size), 2), strict=True):
        both = (access[a][b], access[b][a])
        links.append(_limited(graph, link, next((word for word in both if word is not PeerAccess.OK), PeerAccess.OK)))
    return replace(graph, links=tuple(links))


def _limited(graph: LinkGraph, link: Link, access: PeerAccess) -> Link:
    if access in (PeerAccess.OK, PeerAccess.UNKNOWN):
        return replace(link, peer_access=access)
    kind = link.kind
    if kind in FABRIC_KINDS:  # whose PCIe level the matrix hides
        node = graph.gpus[link.a].numa_node
        kind = LinkKind.NODE if node >= 0 and node == graph.gpus[link.b].numa_node else LinkKind.SYS
    elif bandwidth.path_rank(kind) < bandwidth.path_rank(LinkKind.PHB):
        kind = LinkKind.PHB
    if kind is link.kind:
        return replace(link, peer_access=access)
    return Link(link.a, link.b, kind, 0, bandwidth.pcie()[kind], 0, access)
