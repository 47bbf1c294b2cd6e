"""Text descriptions of a machine, for nodes without GPUs (demos, tests): a known name, or `topo -m` output."""

from kompakt_core.errors import InvalidInput
from kompakt_core.topology.graph import LinkGraph
from kompakt_core.topology.machines import MACHINES
from kompakt_core.topology.matrix import parse_matrix, text_uuid


def read_description(text: str, node: str) -> LinkGraph:
    """The link graph of the node called `node`; its GPUs' UUIDs are made from the node's name and their indices.

    `text` is one word, the name of a known machine, or the output of `nvidia-smi topo -m`.
    Raises InvalidInput: for an unknown name with the known ones, for a broken matrix with line and column.
    """

    def uuids(index: int) -> str:
        return text_uuid(node, index)

    words = text.split()
    if not words:
        raise InvalidInput("empty description; give a known machine's name or the output of `nvidia-smi topo -m`")
    if len(words) > 1:
        return parse_matrix(text, uuids=uuids)
    if words[0] not in MACHINES:
        known = ", ".join(sorted(MACHINES))
        raise InvalidInput(f"unknown machine {words[0][:64]!r}; known are {known}; or give the output of `nvidia-smi topo -m`")
    return MACHINES[words[0]].graph(uuids)
