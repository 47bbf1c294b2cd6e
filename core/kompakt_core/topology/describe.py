"""Text descriptions of a machine: a known name, what `nvidia-smi` prints, or YAML."""

import re
from collections.abc import Callable
from typing import Final

from kompakt_core.errors import InvalidInput
from kompakt_core.topology.access import is_access_row, parse_access, with_access
from kompakt_core.topology.cells import headers, lines_of
from kompakt_core.topology.graph import LinkGraph
from kompakt_core.topology.handwritten import parse_handwritten
from kompakt_core.topology.machines import MACHINES
from kompakt_core.topology.matrix import parse_matrix, text_uuid

FORMS: Final = "a known machine's name, the output of `nvidia-smi topo -m`, or a description in YAML"
# A line that can begin a YAML object: a key, a brace, or the start of a document.
_YAML: Final = re.compile(r"---(\s|$)|\{|[\"']?[A-Za-z]\w*[\"']?:(\s|$)")


def read_description(text: str, node: str) -> LinkGraph:
    """The link graph of the node called `node`; its GPUs' UUIDs are made from the node's name and their indices.

    `text` is the name of a known machine; or the output of `nvidia-smi topo -m`, which that of `topo -p2p` may follow;
    or YAML: a hand-written machine or a GPUTopology. Raises InvalidInput: for an unknown name with the known ones, for
    the others with line and column.
    """

    def uuids(index: int) -> str:
        return text_uuid(node, index)

    words = text.split(maxsplit=2)
    if not words:
        raise InvalidInput(f"empty description; give {FORMS}")
    if _is_yaml(text):
        return parse_handwritten(text, uuids=uuids)
    if len(words) > 1:
        return read_matrices(text, uuids)
    if words[0] not in MACHINES:
        raise InvalidInput(f"unknown machine {words[0][:64]!r}; known are {', '.join(sorted(MACHINES))}; or give {FORMS}")
    return MACHINES[words[0]].graph(uuids)


def _is_yaml(text: str) -> bool:
    lines = (line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#"))
    return _YAML.match(next(lines, "").lstrip("\ufeff")) is not None


def read_matrices(text: str, uuids: Callable[[int], str] | None = None) -> LinkGraph:
    """The link graph of a `topo -m` text; a `topo -p2p` text after (or before) it says which pairs reach each other.

    Raises InvalidInput with line and column.
    """
    lines = lines_of(text)
    starts = [*headers(lines), len(lines)]
    access = next((start for start in starts[:-1] if _is_access(lines, start)), None)
    if access is None:
        return parse_matrix(text, uuids=uuids)
    if len(starts) == 2:
        raise InvalidInput(
            f"line {access + 1}, column 1: a P2P matrix alone tells who may reach whom, not over which link; "
            "put the output of `nvidia-smi topo -m` before it"
        )
    end = next(start for start in starts if start > access)
    links = lines[:access] + [""] * (end - access) + lines[end:]  # each line keeps its number
    only_access = [""] * access + lines[access:end]
    return with_access(parse_matrix("\n".join(links), uuids=uuids), parse_access("\n".join(only_access)))


def _is_access(lines: list[str], start: int) -> bool:
    row = next((line for line in lines[start + 1 :] if line.strip()), "")
    return is_access_row(row)
