"""A pod that cannot be read holds what is written on it: its node's GPUs are not given to another one."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kompakt_core import contract as c
from kompakt_core.errors import InvalidInput
from kompakt_core.ids import NodeName, mask_of
from kompakt_core.placement.model import NodeState, Reason
from kompakt_extender.project_topology import TopologyReader
from kompakt_extender.unreadable_pods import read_pod_or_holding
from tests.support.extender.leader import Leader, on_nodes
from tests.support.extender.made_objects import pod, topology, worker

UNREADABLE = {"containers": "a later version says this otherwise", "nodeName": "n0", "asks": c.RESOURCE}
WRITTEN = {c.ANN_GPUS: "GPU-n0-3,GPU-n0-1"}


def unreadable(**metadata: Any) -> dict[str, Any]:
    made = pod("p", 2)
    made["metadata"].update(metadata)
    made["spec"] = UNREADABLE
    return made


def state_after(made: dict[str, Any], leader: Leader) -> NodeState:
    leader.world.add_pod(made)
    leader.take_over()
    found = leader.ledger.state(NodeName("n0"))
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("made", "taken", "problem"),
    [
        (unreadable(annotations=WRITTEN), (1, 3), None),
        (unreadable(), (), Reason.UNREPORTED_POD),
        (unreadable(annotations={c.ANN_GPUS: 3}), (), Reason.UNREPORTED_POD),
        ({**unreadable(), "spec": {**UNREADABLE, "asks": "cpu"}}, (), None),
        ({**unreadable(annotations=WRITTEN), "status": {"phase": "Succeeded"}}, (), None),
    ],
    ids=["what is written", "nothing is written", "nor can it be read", "no GPUs", "finished"],
)
def test_what_it_holds(made: dict[str, Any], taken: tuple[int, ...], problem: Reason | None) -> None:
    found = state_after(made, on_nodes(1))
    assert (found.taken, found.problem) == (mask_of(taken), problem)


@pytest.mark.parametrize("spoilt", [{"spec": {**UNREADABLE, "nodeName": ""}}, {"spec": 7}, {"status": "as yet unknown"}])
def test_one_that_holds_nothing_we_know_of_is_refused(spoilt: dict[str, Any]) -> None:
    with pytest.raises(msgspec.ValidationError, match="Expected"):
        read_pod_or_holding(json.dumps({**unreadable(annotations=WRITTEN), **spoilt}).encode())


def test_what_the_device_plugin_reports_opens_the_node_again() -> None:
    leader = on_nodes(1)
    leader.world.topologies["n0"]["status"] = {"held": [{"uuid": "GPU-n0-5", "podUID": "uid-p"}]}
    leader.world.put("topologies", "n0", leader.world.topologies["n0"])
    found = state_after(unreadable(), leader)
    assert (found.taken, found.problem) == (mask_of((5,)), None)


def test_it_stays_a_worker_of_its_job(caplog: pytest.LogCaptureFixture) -> None:
    made = worker("j", 0, 2)
    made["spec"] = UNREADABLE
    found = read_pod_or_holding(json.dumps(made).encode())
    assert (found.job_uid, found.attempt) == ("uid-j", 1)
    assert "default/j-worker-0-a1 cannot be read, what it holds of node n0 stays taken" in caplog.text


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
KEYS = st.sampled_from(["metadata", "spec", "status", "name", "uid", "labels", "annotations", "ownerReferences", "nodeName"])


@given(st.dictionaries(KEYS, st.dictionaries(KEYS, JSON) | JSON))
def test_whatever_comes_is_read_or_refused_with_an_error_that_watches_expect(made: dict[str, Any]) -> None:
    try:
        found = read_pod_or_holding(json.dumps(made).encode())
    except (InvalidInput, ValueError, msgspec.DecodeError):
        return
    assert isinstance(found.uid, str)


def test_a_reader_keeps_nothing_of_nodes_that_are_gone() -> None:
    reader = TopologyReader()
    for number in range(50):
        reader(json.dumps(topology(f"n{number}", "dgx2-16xv100" if number else "dgx1-v100")).encode())
        if number:
            reader.forget(f"n{number - 1}")
    assert len(reader._known) == len(reader._links) == 1
