"""Reading the shape of a cluster: RACKSxMACHINESxGPUS, or a JSON file where racks differ."""

import json
import re
from pathlib import Path

from kompakt_core.errors import InvalidInput
from kompakt_simulator.cluster import MOST_GPUS, Shape

_GRID = re.compile(r"([0-9]{1,7})x([0-9]{1,7})x([0-9]{1,7})", re.ASCII)
_WANTED = 'expected {"racks": [[GPUs of each machine], ...]} or {"blocks": [racks, ...]}'


def read_shape(text: str) -> Shape:
    """The shape that `--cluster` names. Raises InvalidInput with what is allowed."""
    grid = _GRID.fullmatch(text)
    if grid:
        return Shape.grid(*(int(number) for number in grid.groups()))
    try:
        content = Path(text).read_text("utf-8")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InvalidInput(f"cluster {text}: {reason}; expected RACKSxMACHINESxGPUS such as 4x16x8, or a JSON file") from error
    return parse_shape(content, text)


def parse_shape(text: str, name: str) -> Shape:
    """The shape in a JSON text: `racks`, a list of racks, or `blocks`, a list of lists of racks. Raises InvalidInput."""
    try:
        raw = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise InvalidInput(f"{name}, line {getattr(error, 'lineno', 1)}: no JSON ({error}); {_WANTED}") from error
    if not isinstance(raw, dict) or len(raw) != 1 or not set(raw) <= {"racks", "blocks"}:
        raise InvalidInput(f"{name}: got {raw!r:.80}; {_WANTED}")
    ((kind, value),) = raw.items()
    blocks = _listed(value, name, kind) if kind == "blocks" else [value]
    racks = [
        (number, _listed(rack, name, f"rack {index}"))
        for number, block in enumerate(blocks)
        for index, rack in enumerate(_listed(block, name, "racks"))
    ]
    sizes = tuple(_gpus(size, name) for _, rack in racks for size in rack)
    if sum(sizes) > MOST_GPUS:
        raise InvalidInput(f"{name}: {sum(sizes)} GPUs; expected at most {MOST_GPUS}")
    rack_of = tuple(index for index, (_, rack) in enumerate(racks) for _ in rack)
    block_of = tuple(block for block, rack in racks for _ in rack) if kind == "blocks" else None
    return Shape(sizes, rack_of, block_of)


def _listed(value: object, name: str, what: str) -> list[object]:
    if not isinstance(value, list) or not value:
        raise InvalidInput(f"{name}, {what}: got {value!r:.80}; {_WANTED}, none of them empty")
    return value


def _gpus(value: object, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST_GPUS:
        raise InvalidInput(f"{name}: a machine of {value!r:.40} GPUs; expected a whole number from 1")
    return value
