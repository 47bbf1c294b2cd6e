"""Recorded drivers answer again as they did: the recorder of tests/gpu, and the recordings that machines with GPUs left."""

import json
from pathlib import Path

import pynvml
import pytest

from kompakt_core.topology.matrix import text_uuid
from kompakt_core.topology.wire import graph_to_spec
from tests.gpu.nvml_report import OWNER, anonymous
from tests.support.nvml_shim.machine import MACHINES, describe
from tests.support.nvml_shim.node import NODE
from tests.support.nvml_shim.recording import record

STORED = sorted((Path(__file__).parents[3] / "docs/benchmarks").glob("nvml-*.json"))


@pytest.mark.parametrize("name", MACHINES)
def test_a_recording_makes_the_same_graph(reader, shim, name):
    described = describe(name)
    described.fail("nvmlDeviceGetMigMode", pynvml.NVML_ERROR_UNKNOWN, gpu=1)  # errors are recorded too
    source = reader(described)
    graph = source.read(NODE)
    text = record(lambda index: text_uuid(OWNER, index)).text()
    source.close()
    again = reader(described)
    shim.describe_text(text)
    found = again.read(NODE)
    assert found.gpus[0] == anonymous(graph).gpus[0]
    assert found.links == graph.links
    assert [gpu.health_reason for gpu in found.gpus] == [gpu.health_reason for gpu in graph.gpus]


@pytest.mark.parametrize("path", STORED, ids=lambda path: path.stem)
def test_a_stored_recording_still_makes_the_stored_graph(reader, shim, path):
    stored = json.loads(path.read_text())
    source = reader(describe("l40s-4"))
    shim.describe_text(stored["recording"])
    graph = source.read(NODE)
    spec = graph_to_spec(graph, node_uid="", source="nvml", driver_version=source.driver_version)
    for gpu in (*spec["gpus"], *stored["graph"]["gpus"]):
        gpu.pop("numaNode")  # it came from that machine's sysfs
    assert spec == stored["graph"]
