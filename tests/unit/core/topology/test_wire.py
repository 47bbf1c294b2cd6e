"""Every field of a link graph goes into GPUTopology.spec and into YAML, and comes back."""

from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from kompakt_core.ids import GpuIndex, GpuUuid
from kompakt_core.schema.reader import read
from kompakt_core.topology.graph import Gpu, Link, LinkGraph, LinkKind, Nic, Partition, PeerAccess
from kompakt_core.topology.handwritten import graph_to_yaml, parse_handwritten
from kompakt_core.topology.machines import machine
from kompakt_core.topology.resource import ReportedGraph
from kompakt_core.topology.wire import graph_from_spec, graph_to_spec
from tests.support.core.outcomes import refusal

CRD = Path(__file__).resolve().parents[4] / "crds" / "gputopologies.yaml"
WORD = st.text("abcXYZ019-_. ", max_size=8)
KINDS = st.sampled_from(list(LinkKind))


def gpu(index: int) -> st.SearchStrategy[Gpu]:
    return st.builds(
        Gpu,
        index=st.just(GpuIndex(index)),
        uuid=st.just(GpuUuid(f"GPU-{index}")),
        numa_node=st.integers(-1, 7),
        model=WORD,
        memory_bytes=st.integers(0, 1 << 40),
        pci_bus_id=WORD,
        module_id=st.sampled_from([-1, index + 3]),
        mig_enabled=st.booleans(),
        health=st.sampled_from(["Healthy", "Unhealthy"]),
        health_reason=WORD,
        xid=st.integers(0, 200),
        clique=st.sampled_from(["", "u-1.0", "u-1.7", "u-2.0"]),
    )


def link(a: int, b: int) -> st.SearchStrategy[Link]:
    def built(kind: LinkKind, lanes: int, speed: int, generation: int, access: PeerAccess) -> Link:
        fabric = kind in (LinkKind.NVLINK, LinkKind.NVSWITCH, LinkKind.C2C, LinkKind.XGMI)
        nvlink = kind in (LinkKind.NVLINK, LinkKind.NVSWITCH)
        lanes, generation = lanes if fabric else 0, generation if nvlink else 0
        return Link(GpuIndex(a), GpuIndex(b), kind, lanes, speed, generation, access)

    return st.builds(built, KINDS, st.integers(1, 36), st.integers(0, 10**7), st.integers(1, 5), st.sampled_from(PeerAccess))


@st.composite
def graphs(draw: st.DrawFn) -> LinkGraph:
    size = draw(st.integers(1, 4))
    pairs = [(GpuIndex(a), GpuIndex(b)) for a, b in combinations(range(size), 2)]
    uneven = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    paths = st.one_of(st.just(()), st.tuples(*[KINDS] * size))
    nics = draw(st.lists(st.builds(Nic, WORD, st.integers(-1, 7), st.integers(0, 10**6), paths), max_size=2))
    modules = st.lists(st.integers(0, 9), min_size=1, max_size=3, unique=True).map(tuple)
    parts = draw(st.lists(st.builds(Partition, st.integers(0, 99), modules), max_size=3, unique_by=lambda part: part.id))
    gpus = tuple(draw(gpu(i)) for i in range(size))
    return LinkGraph(gpus, tuple(draw(link(*pair)) for pair in pairs), tuple(nics), tuple(sorted(uneven)), tuple(parts))


@given(graphs())
@settings(max_examples=60, deadline=None)
def test_any_graph_survives_the_api_and_yaml(graph: LinkGraph) -> None:
    assert graph_from_spec(graph_to_spec(graph, node_uid="u", source="nvml")) == graph
    assert parse_handwritten(graph_to_yaml(graph)) == graph


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"nics": (Nic("a", 0, 0, (LinkKind.PIX,)),)}, "NIC a: 1 paths; one for each of the 2 GPUs is due, or none"),
        ({"uneven": ((1, 0),)}, "uneven pair 1-0: there is no such pair"),
        ({"uneven": ((0, 2),)}, "uneven pair 0-2: there is no such pair"),
        ({"partitions": (Partition(1, (1,)), Partition(1, (2,)))}, "partitions: two have the same id"),
        ({"partitions": (Partition(1, ()),)}, "partition 1: must name at least one module and each once"),
        ({"partitions": (Partition(1, (2, 2)),)}, "partition 1: must name at least one module and each once"),
        ({"gpus": tuple(replace(gpu, module_id=3) for gpu in machine("rtx-2-ns").gpus)}, "two GPUs share one"),
        ({"gpus": tuple(replace(gpu, health="Fine") for gpu in machine("rtx-2-ns").gpus)}, "GPU 0: health is 'Fine'"),
    ],
)
def test_a_graph_that_contradicts_itself_is_refused(fields: dict[str, Any], sentence: str) -> None:
    assert sentence in refusal(lambda: replace(machine("rtx-2-ns"), **fields))


def full() -> LinkGraph:
    """A graph with something in every field."""
    graph = machine("h800-8-shared")
    gpus = [replace(gpu, clique="u-1.3", health="Unhealthy", health_reason="ECC", xid=94) for gpu in graph.gpus]
    links = [replace(link, peer_access=PeerAccess.OK) for link in graph.links]
    nic = Nic("mlx5_0", 0, 25_000, (LinkKind.PIX,) * 8)
    return replace(graph, gpus=tuple(gpus), links=tuple(links), nics=(nic,), uneven=((GpuIndex(0), GpuIndex(1)),))


def test_what_is_written_is_what_the_definition_holds() -> None:
    crd = yaml.load(CRD.read_text(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    written = graph_to_spec(full(), node_uid="u", source="nvml", driver_version="580.1")

    def same(value: Any, schema: dict[str, Any], path: str) -> None:
        if isinstance(value, dict):
            assert set(value) == set(schema["properties"]), path
            for key, part in value.items():
                same(part, schema["properties"][key], f"{path}.{key}")
        elif isinstance(value, list):
            same(value[0], schema["items"], f"{path}[0]")
        else:
            assert type(value) is {"string": str, "integer": int, "boolean": bool}[schema["type"]], path
            assert value in schema.get("enum", [value]), path

    same(written, schema, "spec")


def test_the_fabric_of_the_node_is_that_on_which_its_gpus_agree() -> None:
    spec = graph_to_spec(full(), node_uid="u", source="nvml")
    assert spec["fabric"] == {"clusterUuid": "u-1", "cliqueId": 3}
    graph = full()
    torn = replace(graph, gpus=(replace(graph.gpus[0], clique="u-1.4"), *graph.gpus[1:]))
    assert "fabric" not in graph_to_spec(torn, node_uid="u", source="nvml")
    for entry in spec["gpus"]:
        del entry["clique"]
    assert graph_from_spec(spec) == full(), "GPUs that name no clique have the node's"


ODD = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.lists(st.integers(-2, 70), max_size=3)


@given(data=st.data(), odd=ODD)
@settings(max_examples=300, deadline=None)
def test_what_msgspec_reads_our_reader_reads_alike(data: st.DataObject, odd: Any) -> None:
    """The short way and the way that words errors: where the first takes a spec, the second makes the same of it."""
    spec = graph_to_spec(full(), node_uid="u", source="nvml")
    part = data.draw(st.sampled_from([spec, spec["gpus"][1], spec["links"][2], spec["nics"][0], spec["fabric"]]))
    part[data.draw(st.sampled_from([*part, "more"]))] = odd
    try:
        found = msgspec.convert(spec, ReportedGraph)
    except msgspec.ValidationError:
        return
    assert read(ReportedGraph, spec, "spec") == found
