"""Reading the shape of a cluster: RACKSxMACHINESxGPUS, or a YAML or JSON file where racks differ."""

import re

from kompakt_core.topology.document import Document, read_document
from kompakt_simulator.cluster import MOST_GPUS, ClusterShape
from kompakt_simulator.files import read_text

SHAPE_KEYS = ("racks", "blocks")
_GRID = re.compile(r"([0-9]{1,7})x([0-9]{1,7})x([0-9]{1,7})", re.ASCII)
_WANTED = 'expected {"racks": [[GPUs of each machine], ...]} or {"blocks": [racks, ...]}'
_ROOT = "cluster"


def read_shape(text: str) -> ClusterShape:
    """The shape that `--cluster` names. Raises InvalidInput with what is allowed."""
    grid = _GRID.fullmatch(text)
    if grid:
        return ClusterShape.grid(*(int(number) for number in grid.groups()))
    return parse_shape(read_text(text, "cluster", "expected RACKSxMACHINESxGPUS such as 4x16x8, or a YAML or JSON file"), text)


def parse_shape(text: str, name: str) -> ClusterShape:
    """The shape in a text: `racks`, a list of racks, or `blocks`, a list of lists of racks. Raises InvalidInput with the line."""
    document = read_document(text, _ROOT, name)
    raw = document.value
    shape = shape_in(document, _ROOT) if isinstance(raw, dict) and set(raw) <= set(SHAPE_KEYS) else None
    if shape is None:
        raise document.wrong(_ROOT, f"got {raw!r:.80}; {_WANTED}")
    return shape


def shape_in(document: Document, root: str) -> ClusterShape | None:
    """The shape that an object has under `racks` or `blocks`; None without either. Raises InvalidInput with the line."""
    given = [key for key in SHAPE_KEYS if key in document.value]
    if len(given) != 1:
        if given:
            raise document.wrong(root, f"racks and blocks; {_WANTED}")
        return None
    sizes, racks, blocks = list[int](), list[int](), list[int]()
    for block, (path, members) in enumerate(_blocks(document, root, given[0])):
        for index, rack in enumerate(members):
            at = f"{path}[{index}]"
            racks += [max(racks, default=-1) + 1] * len(machines := _listed(document, at, rack, f"rack {index}"))
            sizes += [_gpus(document, f"{at}[{machine}]", size) for machine, size in enumerate(machines)]
            blocks += [block] * len(machines)
    if sum(sizes) > MOST_GPUS:
        raise document.wrong(f"{root}.{given[0]}", f"{sum(sizes)} GPUs; expected at most {MOST_GPUS}")
    return ClusterShape(tuple(sizes), tuple(racks), tuple(blocks) if given[0] == "blocks" else None)


def _blocks(document: Document, root: str, kind: str) -> list[tuple[str, list[object]]]:
    """(path, racks) of each block; racks alone are one block."""
    path, value = f"{root}.{kind}", document.value[kind]
    if kind == "racks":
        return [(path, _listed(document, path, value, kind))]
    blocks = enumerate(_listed(document, path, value, kind))
    return [(f"{path}[{index}]", _listed(document, f"{path}[{index}]", block, "racks")) for index, block in blocks]


def _listed(document: Document, path: str, value: object, what: str) -> list[object]:
    if not isinstance(value, list) or not value:
        raise document.wrong(path, f"{what}: got {value!r:.80}; {_WANTED}, none of them empty")
    return value


def _gpus(document: Document, path: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST_GPUS:
        raise document.wrong(path, f"a machine of {value!r:.40} GPUs; expected a whole number from 1")
    return value
