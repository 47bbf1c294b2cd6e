"""Reader of `nvidia-smi topo -m`, as printed by any driver or pasted into an issue (tabs or spaces)."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from uuid import UUID, uuid5

from kompakt_core.errors import InvalidInput
from kompakt_core.ids import GpuIndex, GpuUuid
from kompakt_core.topology import bandwidth
from kompakt_core.topology.cells import Cell, cells_of, check_gpu_columns, lines_of
from kompakt_core.topology.graph import Gpu, Link, LinkGraph, LinkKind, Nic
from kompakt_core.topology.sides import Path, link_of, weaker

NAMESPACE = UUID("6b6f6d70-616b-5474-8000-6b6f6d70616b")  # of all UUIDs that stand for GPUs known only from a text

_TRAILING = ("CPU Affinity", "NUMA Affinity", "GPU NUMA ID")
_PCIE = {
    "PSB": LinkKind.PIX,  # two GPUs of one board, in the days of the K80
    "PIX": LinkKind.PIX,
    "PXB": LinkKind.PXB,
    "PHB": LinkKind.PHB,
    "NODE": LinkKind.NODE,
    "SYS": LinkKind.SYS,
    "SOC": LinkKind.SYS,
}
# As the kernel calls RDMA devices: mlx5_0, mlx5_bond_0, rdmap16s27, bnxt_re0, ...; NICn in new drivers.
_NIC = re.compile(r"(NIC|[a-z])(?=\w*[0-9])\w{1,31}")
_CPU_LIST = re.compile(r"[0-9]{1,5}([-,][0-9]{1,5})*")
_WORDS = "X, NV<lanes>, PIX, PXB, PHB, NODE, SYS or SOC"


@dataclass(frozen=True, slots=True)
class Header:
    """The columns: GPU count, names of NICs, and which trailing columns follow."""

    gpus: int
    nics: tuple[str, ...]
    trailing: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MatrixRow:
    """One GPU's row: paths to all GPUs (None for itself), to all NICs, CPU affinity text and NUMA node (-1 unknown)."""

    paths: tuple[Path | None, ...]
    nics: tuple[LinkKind, ...]
    cpus: str
    numa: int


def text_uuid(owner: str, index: int) -> GpuUuid:
    """The made-up but stable UUID of a GPU that only a text describes; `owner` is a node's or a machine's name."""
    return GpuUuid(f"GPU-{uuid5(NAMESPACE, f'{owner}/{index}')}")


def parse_matrix(text: str, *, uuids: Callable[[int], str] | None = None, generation: int = 0, model: str = "") -> LinkGraph:
    """The link graph that a `topo -m` text describes.

    `uuids` names the GPU at an index (default: stable made-up UUIDs); `generation` is NVLink's (0: inferred from the
    number of lanes per GPU, see bandwidth.generation_by_count).
    Pairs whose two cells disagree take the weaker one and are listed in `uneven`.
    Raises InvalidInput with line and column.
    """
    lines = lines_of(text)
    number, header = _find_header(lines)
    rows = _read_rows(lines, number + 1, header)
    legend = _nic_legend(lines[number + 1 :])
    name = uuids or (lambda index: text_uuid("matrix", index))
    numa = _numa_nodes(rows)
    gpus = tuple(Gpu(GpuIndex(i), GpuUuid(name(i)), numa[i], model) for i in range(header.gpus))
    links, uneven = _links(rows, generation, model)
    return LinkGraph(gpus, links, _nics(header, rows, numa, legend), uneven)


def _find_header(lines: Sequence[str]) -> tuple[int, Header]:
    """Index of the header line and what it says."""
    first = next((cells for i, line in enumerate(lines) if (cells := cells_of(line, i + 1)) and cells[0].text == "GPU0"), None)
    if not first:
        raise InvalidInput("link matrix: no header line beginning with GPU0; give the whole output of `nvidia-smi topo -m`")
    if len(first) > 1 and _is_path(first[1].text):
        raise first[0].wrong("the row of GPU0 comes before a header line; the header names the columns GPU0, GPU1, ...")
    return first[0].line - 1, _read_header(lines[first[0].line - 1], first)


def _is_path(word: str) -> bool:
    return word == "X" or word in _PCIE or re.fullmatch(r"NV\d+", word) is not None


def _read_header(line: str, cells: Sequence[Cell]) -> Header:
    rest = line
    trailing: list[str] = []
    for name in reversed(_TRAILING):
        found = re.search(r"\b" + name.replace(" ", r"\s+") + r"\s*$", rest)
        if found:
            trailing.insert(0, name)
            rest = rest[: found.start()]
    names = cells_of(rest, cells[0].line)
    gpus = [cell for cell in names if re.fullmatch(r"GPU[0-9]+", cell.text)]
    check_gpu_columns(gpus)
    nics = names[len(gpus) :]
    if names[: len(gpus)] != gpus:
        raise next(cell for cell in names if cell not in gpus).wrong("GPU columns must come before NIC columns")
    for cell in nics:
        if not _NIC.fullmatch(cell.text):
            known = ", ".join(_TRAILING)
            raise cell.wrong(
                f"unknown column {cell.text[:32]!r}; known are GPUn, NICn, names of NICs such as mlx5_0, and {known}"
            )
    if len({cell.text for cell in nics}) < len(nics):
        raise nics[-1].wrong("two NIC columns have one name")
    return Header(len(gpus), tuple(cell.text for cell in nics), tuple(trailing))


def _read_rows(lines: Sequence[str], start: int, header: Header) -> list[MatrixRow]:
    rows: list[MatrixRow] = []
    for number, line in enumerate(lines[start:], start=start + 1):
        cells = cells_of(line, number)
        if not cells:
            if rows:
                break  # a blank line ends the matrix, the legend follows
            continue
        if cells[0].text in header.nics:
            continue  # a NIC's row repeats the NIC columns
        if len(rows) == header.gpus:
            break
        if cells[0].text != f"GPU{len(rows)}":
            raise cells[0].wrong(f"found {cells[0].text[:32]!r} where the row of GPU{len(rows)} is due")
        rows.append(_read_row(line, cells, len(rows), header))
    if len(rows) < header.gpus:
        raise Cell("", len(lines), 1).wrong(f"the header names {header.gpus} GPUs but only {len(rows)} rows follow")
    return rows


def _read_row(line: str, cells: Sequence[Cell], index: int, header: Header) -> MatrixRow:
    columns = header.gpus + len(header.nics)
    if len(cells) <= columns:
        raise cells[-1].wrong(f"the row of GPU{index} ends here with {len(cells) - 1} of {columns} columns")
    paths = tuple(_gpu_path(cell, index, other) for other, cell in enumerate(cells[1 : header.gpus + 1]))
    nics = tuple(_nic_kind(cell) for cell in cells[header.gpus + 1 : columns + 1])
    cpus, numa = _affinity(line, cells[columns + 1 :], header)
    return MatrixRow(paths, nics, cpus, numa)


def _gpu_path(cell: Cell, index: int, other: int) -> Path | None:
    if (cell.text == "X") != (index == other):
        right = "X" if index == other else _WORDS.removeprefix("X, ")
        raise cell.wrong(f"found {cell.text[:32]!r} between GPU{index} and GPU{other}; expected {right}")
    return None if cell.text == "X" else _path(cell)


def _path(cell: Cell) -> Path:
    if cell.text in _PCIE:
        return Path(_PCIE[cell.text], 0)
    lanes = re.fullmatch(r"NV([0-9]{1,2})", cell.text)
    if not lanes:
        raise cell.wrong(f"unknown link {cell.text[:32]!r}; known are {_WORDS}")
    if not 1 <= int(lanes[1]) <= bandwidth.MAX_LANES:
        raise cell.wrong(f"{cell.text} has {lanes[1]} lanes; 1 to {bandwidth.MAX_LANES} are possible")
    return Path(LinkKind.NVLINK, int(lanes[1]))


def _nic_kind(cell: Cell) -> LinkKind:
    if cell.text not in _PCIE:
        raise cell.wrong(f"unknown link {cell.text[:32]!r} to a NIC; known are {', '.join(_PCIE)}")
    return _PCIE[cell.text]


def _affinity(line: str, cells: Sequence[Cell], header: Header) -> tuple[str, int]:
    """CPU list and NUMA node of a row. With tabs an empty cell keeps its place; with spaces only the order is known."""
    if "\t" in line and cells:
        texts = [part.strip() for part in line[cells[0].column - 1 :].split("\t")]
        before = line[: cells[0].column - 1].count("\t")
        leading = before - 1 - header.gpus - len(header.nics)
        texts = [""] * max(leading, 0) + texts
    else:
        texts = [cell.text for cell in cells]
    values = dict(zip(header.trailing, texts, strict=False))
    numa = values.get("NUMA Affinity", "")
    return values.get("CPU Affinity", ""), int(numa) if re.fullmatch(r"[0-9]{1,4}", numa) else -1


def _numa_nodes(rows: Sequence[MatrixRow]) -> list[int]:
    """NUMA node of each GPU. Old drivers print CPU lists only: then GPUs with one list share a node, in order of CPUs."""
    if any(row.numa >= 0 for row in rows) or not all(_CPU_LIST.fullmatch(row.cpus) for row in rows):
        return [row.numa for row in rows]
    lists = sorted({row.cpus for row in rows}, key=lambda cpus: (int(re.split(r"[-,]", cpus)[0]), cpus))
    return [lists.index(row.cpus) for row in rows]


def _links(
    rows: Sequence[MatrixRow], generation: int, model: str
) -> tuple[tuple[Link, ...], tuple[tuple[GpuIndex, GpuIndex], ...]]:
    sums = [sum(path.lanes for path in row.paths if path) for row in rows]
    switched = [lanes > bandwidth.MAX_LANES_OF_A_GPU for lanes in sums]
    known = generation or bandwidth.generation_by_count(_lanes_per_gpu(rows, sums, switched))
    links, uneven = [], []
    for a, b in combinations(range(len(rows)), 2):
        there, back = rows[a].paths[b], rows[b].paths[a]
        assert there is not None
        assert back is not None
        path, differ = weaker(there, back, known)
        if differ:
            uneven.append((GpuIndex(a), GpuIndex(b)))
        through = path.lanes > 0 and switched[a] and switched[b]
        path = Path(LinkKind.NVSWITCH, path.lanes) if through else path
        links.append(link_of(a, b, path, known, model=model))
    return tuple(links), tuple(uneven)


def _lanes_per_gpu(rows: Sequence[MatrixRow], sums: Sequence[int], switched: Sequence[bool]) -> int:
    """Lanes of one GPU. Behind a switch every cell shows all of them: more lanes in a row than a GPU can have."""
    if any(switched):
        return max(path.lanes for row in rows for path in row.paths if path)
    return max(sums, default=0)


def _nic_legend(lines: Sequence[str]) -> dict[str, str]:
    """NIC0 -> mlx5_0, from the legend of newer drivers."""
    found = (re.fullmatch(r"\s*(NIC\d{1,4}):\s*(\S{1,64})\s*", line) for line in lines)
    return {match[1]: match[2] for match in found if match}


def _nics(header: Header, rows: Sequence[MatrixRow], numa: Sequence[int], legend: dict[str, str]) -> tuple[Nic, ...]:
    """NICs by name; their NUMA node is that of a GPU with a path inside the node. Speed is not in the text: 0."""
    nics = []
    for column, name in enumerate(header.nics):
        paths = tuple(row.nics[column] for row in rows)
        near = [node for kind, node in zip(paths, numa, strict=True) if kind is not LinkKind.SYS and node >= 0]
        nics.append(Nic(legend.get(name, name), near[0] if near else -1, 0, paths))
    return tuple(sorted(nics, key=lambda nic: (len(nic.name), nic.name)))
