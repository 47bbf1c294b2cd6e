"""What a node says of its GPUs, and when it is written."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kompakt_client.errors import Conflict
from kompakt_core.topology.describe import read_description
from kompakt_core.topology.wire import graph_from_spec
from kompakt_device_plugin import report as module
from kompakt_device_plugin.api import TOPOLOGIES
from kompakt_device_plugin.report import (  # type: ignore[attr-defined]
    GpuHolder,
    NodeReport,
    TopologyCondition,
    TopologyReporter,
    conditions_of,
    fabric_of,
    holds,
    status_of,
)

NOW, LATER = "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z"
PATH = f"{TOPOLOGIES}/node-1"


@pytest.fixture
def report(dgx1):
    return NodeReport("node-1", "uid-node", dgx1, "text")


@pytest.fixture
def reporter(api):
    return TopologyReporter(api)


def test_the_object_belongs_to_its_node_and_says_the_graph_back(report, reporter, api, dgx1):
    live = reporter.report(report, None, NOW)
    assert live["metadata"]["ownerReferences"] == [{"apiVersion": "v1", "kind": "Node", "name": "node-1", "uid": "uid-node"}]
    assert graph_from_spec(live["spec"]) == dgx1
    assert (live["spec"]["nodeUID"], live["spec"]["source"]) == ("uid-node", "text")
    assert {key: live["status"][key] for key in ("gpus", "free", "fabric", "health")} == {
        "gpus": 8,
        "free": 8,
        "fabric": "NVLink",
        "health": "Healthy",
    }


def test_nothing_is_written_while_nothing_changes(report, reporter, api):
    live = reporter.report(report, None, NOW)
    writes = len(api.calls)
    for _ in range(5):
        live = reporter.report(report, live, LATER)
    assert len(api.calls) == writes


def test_a_report_that_stands_is_not_even_put_together_again_until_either_side_changes(report, reporter, api, monkeypatch):
    live = reporter.report(report, None, NOW)
    reporter.report(report, live, LATER)
    made = []
    monkeypatch.setattr(module, "status_of", lambda *given: made.append(given) or status_of(*given))
    for _ in range(5):
        assert reporter.report(report, live, LATER) is live
    assert made == []
    damaged = {**live, "status": {}}
    assert reporter.report(report, damaged, LATER)["status"]["gpus"] == 8
    assert made


def test_a_held_gpu_changes_the_status_alone(report, reporter, api, dgx1):
    live = reporter.report(report, None, NOW)
    api.calls.clear()
    held = GpuHolder(dgx1.gpus[3].uuid, "default", "a", "uid-a")
    live = reporter.report(replace(report, held=(held,)), live, NOW)
    assert [path for _, path, _ in api.calls] == [f"{PATH}/status"]
    assert live["status"]["held"] == [{"uuid": held.uuid, "namespace": "default", "pod": "a", "podUID": "uid-a"}]
    assert live["status"]["free"] == 7


def test_a_deleted_object_is_restored_with_its_status(report, reporter, api):
    reporter.report(report, None, NOW)
    api.remove(PATH)
    reporter.report(report, None, NOW)
    assert api.objects[PATH]["status"]["gpus"] == 8


def test_what_others_changed_is_set_right(report, reporter, api):
    live = reporter.report(report, None, NOW)
    live["status"]["free"] = 3
    live = api.put(PATH, live)
    assert reporter.report(report, live, NOW)["status"]["free"] == 8


def test_a_node_made_anew_is_the_new_owner(report, reporter, api):
    live = reporter.report(report, None, NOW)
    live = reporter.report(replace(report, node_uid="uid-new"), live, NOW)
    assert live["metadata"]["ownerReferences"][0]["uid"] == live["spec"]["nodeUID"] == "uid-new"


def test_writing_on_an_outdated_state_is_refused(report, reporter, api):
    live = reporter.report(report, None, NOW)
    api.put(PATH, live)
    with pytest.raises(Conflict):
        reporter.report(replace(report, node_uid="uid-new"), live, NOW)


def test_every_apply_holds_all_three_conditions(report, dgx1):
    unhealthy = replace(dgx1, gpus=(replace(dgx1.gpus[0], health="Unhealthy"), *dgx1.gpus[1:]))
    troubled = replace(
        report, graph=unhealthy, problem=TopologyCondition("Ready", False, "Conflict", "x"), other_owner="nvidia.com/gpu"
    )
    assert [(c.type, c.status) for c in conditions_of(report)] == [("Ready", True), ("Degraded", False), ("Conflict", False)]
    assert [(c.type, c.status) for c in conditions_of(troubled)] == [("Ready", False), ("Degraded", True), ("Conflict", True)]


def test_a_condition_keeps_its_time_until_it_turns(report):
    before = status_of(report, [], NOW)["status"]["conditions"]
    same = status_of(report, before, LATER)["status"]["conditions"]
    turned = status_of(replace(report, problem=TopologyCondition("Ready", False, "Conflict", "x")), before, LATER)["status"][
        "conditions"
    ]
    assert [c["lastTransitionTime"] for c in same] == [NOW, NOW, NOW]
    assert [c["lastTransitionTime"] for c in turned] == [LATER, NOW, NOW]


def test_sick_and_held_gpus_are_not_free_and_a_problem_leaves_none(report, dgx1):
    unhealthy = replace(dgx1, gpus=(replace(dgx1.gpus[0], health="Unhealthy"), *dgx1.gpus[1:]))
    held = (GpuHolder(dgx1.gpus[1].uuid, "ns", "a", ""),)
    status = status_of(replace(report, graph=unhealthy, held=held), [], NOW)["status"]
    assert (status["gpus"], status["free"], status["health"]) == (8, 6, "Degraded")
    assert status_of(replace(report, problem=TopologyCondition("Ready", False, "x", "y")), [], NOW)["status"]["free"] == 0


def test_links_on_which_two_gpus_disagree_degrade_the_node(report, dgx1):
    (_, degraded, _) = conditions_of(replace(report, graph=replace(dgx1, uneven=((0, 3),))))
    assert (degraded.status, degraded.reason) == (True, "AsymmetricLink")
    assert "0-3" in degraded.message


@pytest.mark.parametrize(
    ("machine", "fabric"), [("l40s-4", "PCIe"), ("hgx-h100-8", "NVSwitch"), ("a100-pcie-8-bridge-pairs", "NVLink")]
)
def test_a_node_is_called_after_its_fastest_fabric(machine, fabric):
    assert fabric_of(read_description(machine, "node-1")) == fabric


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=8,
)


@given(JSON, JSON)
def test_more_fields_than_wanted_are_fine_but_no_other_value(live, wanted):
    assert holds(live, live)
    if isinstance(live, dict):
        assert holds({**live, "more": wanted}, {k: v for k, v in live.items() if k != "more"})
    if not isinstance(wanted, dict | list):
        assert holds(live, wanted) == (live == wanted)
    assert not holds([live], [live, wanted])
