"""A machine in a few lines of YAML, for people who want to try one; `docs/placement.md` shows the form.

    gpus: 4
    model: A100                           # gives NVLink's generation
    numaNodes: [0, 0, 1, 1]
    links:
    - {kind: NV12, pairs: [0-1, 2-3]}
    - {kind: SYS}                         # all other pairs

`gpus`, `nics` and `partitions` may also be lists of objects as in GPUTopology.spec, and a whole GPUTopology is read too.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, Final

from kompakt_core.errors import InvalidInput
from kompakt_core.ids import GpuIndex, GpuUuid
from kompakt_core.schema.reader import read
from kompakt_core.schema.words import FieldError, kind_of
from kompakt_core.topology import bandwidth
from kompakt_core.topology.cells import MAX_GPUS
from kompakt_core.topology.document import read_document
from kompakt_core.topology.entries import LinkEntry, Pair, assigned, read_entry, switched
from kompakt_core.topology.fields import Fields
from kompakt_core.topology.graph import Gpu, Link, LinkGraph
from kompakt_core.topology.matrix import text_uuid
from kompakt_core.topology.resource import ReportedGpu, ReportedNic, ReportedPartition
from kompakt_core.topology.wire import (
    gpu_of,
    gpu_to_wire,
    graph_from_spec,
    nic_of,
    nic_to_wire,
    partition_of,
    partition_to_wire,
)

TITLE: Final = "machine description"
_ROOT: Final = "machine"
_KEYS: Final = ("gpus", "model", "numaNodes", "nvlinkGeneration", "links", "nics", "partitions", "source", "note")


def parse_handwritten(text: str, *, uuids: Callable[[int], str] | None = None) -> LinkGraph:
    """The link graph that a YAML text describes; `uuids` renames its GPUs (default: as written, else made up).

    Raises InvalidInput with line and column.
    """
    document = read_document(text, _ROOT, TITLE)
    try:
        graph = _graph(document.value)
    except FieldError as error:
        path = error.path if error.path.startswith(_ROOT) else f"{_ROOT}.{error.path}"
        raise document.wrong(path, str(error).removeprefix(f"{_ROOT}.")) from None
    except InvalidInput as error:
        raise InvalidInput(f"{TITLE}: {error}") from None
    if uuids is None:
        return graph
    return replace(graph, gpus=tuple(replace(gpu, uuid=GpuUuid(uuids(gpu.index))) for gpu in graph.gpus))


@dataclass(frozen=True, slots=True)
class About:
    """What a text says of a machine without its links."""

    gpus: int
    model: str
    source: str
    note: str


def about(text: str) -> About:
    """What a YAML text says of its machine: cheaper than the graph. Raises InvalidInput with line and column."""
    document = read_document(text, _ROOT, TITLE)
    try:
        top = Fields(document.value, _ROOT)
        gpus = top.value.get("gpus")
        size = len(gpus) if isinstance(gpus, list) else top.number("gpus")
        return About(size, top.text("model", ""), top.text("source", "", 2000), top.text("note", "", 2000))
    except FieldError as error:
        raise document.wrong(error.path, str(error).removeprefix(f"{_ROOT}.")) from None


def _graph(value: Any) -> LinkGraph:
    top = Fields(value, _ROOT)
    if top.value.get("kind") == "GPUTopology":
        return graph_from_spec(top.child("spec").value)
    top.only(_KEYS)
    gpus = _gpus(top)
    links, uneven = _links(top, gpus)
    nics = [read(ReportedNic, item.value, item.path) for item in top.items("nics", 256, required=False)]
    partitions = [read(ReportedPartition, item.value, item.path) for item in top.items("partitions", 64, required=False)]
    return LinkGraph(gpus, links, tuple(map(nic_of, nics)), uneven, tuple(map(partition_of, partitions)))


def _gpus(top: Fields) -> tuple[Gpu, ...]:
    model, found = top.text("model", ""), top.value.get("gpus")
    if isinstance(found, list):
        items = top.items("gpus", MAX_GPUS)
        filled = [{"index": i, "uuid": text_uuid(_ROOT, i), **item.value} for i, item in enumerate(items)]
        gpus = [gpu_of(read(ReportedGpu, gpu, item.path), item.path) for gpu, item in zip(filled, items, strict=True)]
    else:
        count = top.number("gpus", low=1)
        if count > MAX_GPUS:
            raise top.wrong("gpus", f"{count} GPUs; at most {MAX_GPUS} are read")
        gpus = [Gpu(GpuIndex(i), text_uuid(_ROOT, i)) for i in range(count)]
    nodes = _numa_nodes(top, len(gpus))
    named = (replace(gpu, model=gpu.model or model) for gpu in gpus)
    return tuple(replace(gpu, numa_node=nodes[i]) if nodes else gpu for i, gpu in enumerate(named))


def _numa_nodes(top: Fields, size: int) -> list[int]:
    nodes = top.values("numaNodes", MAX_GPUS)
    if nodes and len(nodes) != size:
        raise top.wrong("numaNodes", f"{len(nodes)} entries; one for each of the {size} GPUs is due")
    for position, node in enumerate(nodes):
        if isinstance(node, bool) or not isinstance(node, int) or not -1 <= node <= 9999:
            raise top.wrong(f"numaNodes[{position}]", f"expected a number of a NUMA node, found {kind_of(node)}")
    return nodes


def _links(top: Fields, gpus: tuple[Gpu, ...]) -> tuple[tuple[Link, ...], tuple[Pair, ...]]:
    size = len(gpus)
    entries = [read_entry(item, size) for item in top.items("links", 4096, required=size > 1)]
    table = assigned(top, entries, size)
    through = switched(table, size)
    model = gpus[0].model if gpus else ""
    generation = top.number("nvlinkGeneration", 0) or bandwidth.generation_of_model(model)
    if generation > bandwidth.MAX_GENERATION:
        raise top.wrong("nvlinkGeneration", f"must be from 1 to {bandwidth.MAX_GENERATION}")
    generation = generation or bandwidth.generation_by_count(_lanes_per_gpu(table, size, any(through)))
    links = [entry.link(pair, generation, through[pair[0]] and through[pair[1]], model) for pair, entry in sorted(table.items())]
    return tuple(links), tuple(sorted(pair for pair, entry in table.items() if entry.uneven))


def _lanes_per_gpu(table: dict[Pair, LinkEntry], size: int, through_switches: bool) -> int:
    lanes = [[entry.lanes for pair, entry in table.items() if i in pair] for i in range(size)]
    return max((max(found, default=0) if through_switches else sum(found) for found in lanes), default=0)


def graph_to_yaml(graph: LinkGraph) -> str:
    """A graph as such a text: parse_handwritten gives an equal graph back."""
    import yaml

    document: dict[str, Any] = {"gpus": [_spare(gpu_to_wire(gpu)) for gpu in graph.gpus]}
    if graph.links:
        document["links"] = _entries(graph)
    if graph.nics:
        document["nics"] = [nic_to_wire(nic) for nic in graph.nics]
    if graph.partitions:
        document["partitions"] = [partition_to_wire(part) for part in graph.partitions]
    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    return str(yaml.dump(document, Dumper=dumper, sort_keys=False, width=120, default_flow_style=None))


def _spare(gpu: dict[str, Any]) -> dict[str, Any]:
    """A GPU without what says nothing."""
    unknown: dict[str, Any] = {"pciBusId": "", "moduleId": -1, "numaNode": -1, "model": "", "memoryBytes": 0, "clique": ""}
    unknown |= {"migEnabled": False, "health": "Healthy"}
    return {key: value for key, value in gpu.items() if key not in unknown or value != unknown[key]}


def _entries(graph: LinkGraph) -> list[dict[str, Any]]:
    """One entry for all pairs with equal links; the commonest comes last and names no pairs."""

    def what(link: Link) -> tuple[Any, ...]:
        uneven = (link.a, link.b) in graph.uneven
        return link.kind, link.lanes, link.generation, link.megabytes_per_second, link.peer_access, uneven

    groups = [list(group) for _, group in groupby(sorted(graph.links, key=what), key=what)]
    groups.sort(key=len)
    last = groups[-1]
    return [_entry(graph, group, named=group is not last) for group in groups]


def _entry(graph: LinkGraph, group: list[Link], *, named: bool) -> dict[str, Any]:
    link = group[0]
    entry: dict[str, Any] = {"kind": link.kind.value, "lanes": link.lanes, "nvlinkGeneration": link.generation}
    entry["gigabytesPerSecond"] = link.megabytes_per_second / 1000
    entry["peerAccess"] = link.peer_access.value
    entry = {key: value for key, value in entry.items() if value or key == "gigabytesPerSecond"}
    if (link.a, link.b) in graph.uneven:
        entry["uneven"] = True
    if named:
        entry["pairs"] = [f"{pair.a}-{pair.b}" for pair in group]
    return entry
