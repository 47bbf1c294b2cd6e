"""Whatever a driver answers, the reader makes a graph of it or says one sentence, and of a pair it hears both sides."""

import subprocess
import sys
from itertools import combinations

import pynvml
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kompakt_core.errors import InvalidInput
from kompakt_core.topology.graph import LinkKind
from kompakt_device_plugin.nvml.library import NEEDED
from tests.support.nvml_shim.described import ALL_F, Described
from tests.support.nvml_shim.machine import bus
from tests.support.nvml_shim.node import NODE

GPU, SWITCH = pynvml.NVML_NVLINK_DEVICE_TYPE_GPU, pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH
CODES = [
    code
    for name, code in vars(pynvml).items()
    if name.startswith("NVML_ERROR_") and isinstance(code, int) and code != pynvml.NVML_ERROR_TIMEOUT
]
# nvmlInit is asked by another test; what cannot be shut down is none of a graph's.
OPTIONAL = ("MemoryInfo", "FieldValues", "NvLinkRemoteDeviceType", "NvLinkVersion", "GpuFabricInfoV")
FUNCTIONS = ["*", *NEEDED[3:], *(f"nvmlDeviceGet{name}" for name in OPTIONAL)]


@st.composite
def machines(draw, *, failing):
    """Some GPUs with lanes to anything, pairs at any level, registered with anything or nothing; perhaps with errors."""
    size = draw(st.integers(1, 5))
    gpus = [
        {"uuid": f"GPU-{i}", "bus": bus(i), "name": "any", "links": draw(st.sampled_from([None, 0, 3])), "mig": 0}
        for i in range(size)
    ]
    found = Described("1.2.3", gpus)
    ends = st.sampled_from(
        [(GPU, bus(i)) for i in range(size)] + [(SWITCH, ALL_F), (SWITCH, "00000000:05:00.0"), (GPU, ALL_F), (255, "")]
    )
    for i in range(size):
        for lane in range(draw(st.integers(0, 4))):
            kind, end = draw(ends)
            found.links[i, lane] = {"active": draw(st.integers(0, 1)), "type": kind, "bus": end}
    for pair in combinations(range(size), 2):
        caps = ",".join(str(draw(st.integers(0, 7))) for _ in range(5))
        found.pairs[pair] = {"level": draw(st.sampled_from([0, 10, 20, 30, 40, 50, 77])), "p2p": caps}
    for i in draw(st.sets(st.integers(0, size - 1))):
        found.fabrics[i] = {
            "state": draw(st.integers(0, 4)),
            "status": draw(st.sampled_from([0, 999])),
            "mask": draw(st.integers(0, 0xFFFF)),
        }
    if failing:
        fails = st.tuples(st.sampled_from(FUNCTIONS), st.integers(-1, size - 1), st.integers(-1, 3), st.sampled_from(CODES))
        found.fails = draw(st.lists(fails, min_size=1, max_size=4))
    return found


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(machines(failing=True))
def test_any_errors_end_in_a_graph_or_in_one_sentence(reader, described):
    source = reader(described)
    said = ""
    try:
        assert source.read(NODE).size == len(described.gpus)
    except InvalidInput as error:
        said = str(error)
    source.close()
    assert "\n" not in said
    assert not said or "NVML" in said


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(machines(failing=False))
def test_direct_lanes_are_those_that_both_sides_see(reader, described):
    source = reader(described)
    graph = source.read(NODE)
    source.close()
    for a, b in combinations(range(graph.size), 2):
        there, back = (seen(described, one, other) for one, other in ((a, b), (b, a)))
        link = graph.link(a, b)
        if there or back:
            assert (link.kind is LinkKind.NVLINK, link.lanes) == (min(there, back) > 0, min(there, back))
            assert ((a, b) in graph.uneven) == (there != back)
        else:
            assert link.kind is not LinkKind.NVLINK
        if link.kind is LinkKind.NVSWITCH:
            assert described.pairs[a, b]["p2p"].split(",")[2] == str(pynvml.NVML_P2P_STATUS_OK)


def seen(described, one, other):
    """Active lanes of one GPU that name the other, among those that it says it has."""
    limit = described.gpus[one]["links"]
    return sum(
        link["active"] and link["bus"] == bus(other)
        for (gpu, lane), link in described.links.items()
        if gpu == one and (limit is None or lane < limit)
    )


def test_a_description_with_a_typo_is_no_machine(shim):
    """The stand-in ends its process then: a test must not turn green over another machine than it names."""
    code = f"import ctypes; ctypes.CDLL({str(shim.path)!r}).shim_describe(b'gpuu 0 uuid=x')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode < 0
    assert "cannot read the line: gpuu 0" in done.stderr


@pytest.mark.parametrize("code", CODES)
def test_every_error_of_starting_is_one_sentence(reader, code):
    described = Described("1.2.3", [])
    described.fail("nvmlInitWithFlags", code)
    with pytest.raises(InvalidInput, match=r"^NVML does not start: .+; .+$"):
        reader(described).read(NODE)
