"""What a node says of its GPUs, and when it is written."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kompakt_client.errors import Conflict
from kompakt_core.contract.gpu_holders import GpuHolder
from kompakt_core.topology.describe import read_description
from kompakt_core.topology.wire import graph_from_spec
from kompakt_device_plugin import report as module
from kompakt_device_plugin.api import TOPOLOGIES
from kompakt_device_plugin.metrics import PluginMetrics
from kompakt_device_plugin.report import (
    NodeReport,
    TopologyCondition,
    TopologyReporter,
    conditions_of,
    fabric_of,
    holds,
    status_of,
)
from tests.support.device_plugin.pods import GRAPH

NOW, LATER = "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z"
PATH = f"{TOPOLOGIES}/node-1"
REPORT = NodeReport("node-1", "uid-node", GRAPH, "text")
ONE_UNHEALTHY = replace(GRAPH, gpus=(replace(GRAPH.gpus[0], health="Unhealthy"), *GRAPH.gpus[1:]))
PROBLEM = TopologyCondition("Ready", False, "Conflict", "x")
HELD = GpuHolder(GRAPH.gpus[3].uuid, "default", "a", "uid-a")


@pytest.fixture
def reporter(api):
    return TopologyReporter(api)


@pytest.fixture
def live(reporter):
    """As it stands after the first report."""
    return reporter.report(REPORT, None, NOW)


def test_conditions_are_shown_as_a_metric():
    metrics = PluginMetrics()
    metrics.show(REPORT)
    shown = ("Ready", "Degraded", "Conflict")
    assert [metrics.value("condition", type=one) for one in shown] == [1, 0, 0]
    metrics.show(replace(REPORT, graph=ONE_UNHEALTHY, problem=PROBLEM, other_owner="nvidia.com/gpu"))
    assert [metrics.value("condition", type=one) for one in shown] == [0, 1, 1]
    unknown = TopologyCondition("Ready", None, "NoDriver", "x")
    metrics.show(replace(REPORT, problem=unknown))
    assert metrics.value("condition", type="Ready") == 0


def test_the_object_belongs_to_its_node_and_says_the_graph_back(live):
    assert live["metadata"]["ownerReferences"] == [{"apiVersion": "v1", "kind": "Node", "name": "node-1", "uid": "uid-node"}]
    assert graph_from_spec(live["spec"]) == GRAPH
    assert (live["spec"]["nodeUID"], live["spec"]["source"]) == ("uid-node", "text")
    status = {"gpus": 8, "free": 8, "fabric": "NVLink", "health": "Healthy"}
    assert live["status"] == live["status"] | status


def test_while_nothing_changes_nothing_is_written_or_even_put_together(live, reporter, api, monkeypatch):
    made = []
    reporter.report(REPORT, live, LATER)
    writes = len(api.calls)
    monkeypatch.setattr(module, "status_of", lambda *given: made.append(given) or status_of(*given))
    for _ in range(5):
        assert reporter.report(REPORT, live, LATER) is live
    assert (made, len(api.calls)) == ([], writes)
    damaged = {**live, "status": {}}
    assert reporter.report(REPORT, damaged, LATER)["status"]["gpus"] == 8
    assert made


def test_a_held_gpu_changes_the_status_alone(live, reporter, api):
    api.calls.clear()
    live = reporter.report(replace(REPORT, held=(HELD,)), live, NOW)
    assert [path for _, path, _ in api.calls] == [f"{PATH}/status"]
    assert live["status"]["held"] == [{"uuid": HELD.uuid, "namespace": "default", "pod": "a", "podUID": "uid-a"}]
    assert live["status"]["free"] == 7


def test_what_others_deleted_or_changed_is_set_right(live, reporter, api):
    api.remove(PATH)
    live = reporter.report(REPORT, None, NOW)
    assert api.objects[PATH]["status"]["gpus"] == 8
    live["status"]["free"] = 3
    assert reporter.report(REPORT, api.put(PATH, live), NOW)["status"]["free"] == 8


def test_a_node_made_anew_is_the_new_owner(live, reporter, api):
    anew = replace(REPORT, node_uid="uid-new")
    api.put(PATH, live)
    with pytest.raises(Conflict):  # what was known is out of date
        reporter.report(anew, live, NOW)
    live = reporter.report(anew, api.get(PATH), NOW)
    assert live["metadata"]["ownerReferences"][0]["uid"] == live["spec"]["nodeUID"] == "uid-new"


TROUBLED = replace(REPORT, graph=ONE_UNHEALTHY, problem=PROBLEM, other_owner="nvidia.com/gpu")


@pytest.mark.parametrize(("report", "turned"), [(REPORT, False), (TROUBLED, True)], ids=["as it should be", "in every trouble"])
def test_every_apply_holds_all_three_conditions(report, turned):
    found = [(one.type, one.status) for one in conditions_of(report)]
    assert found == [("Ready", not turned), ("Degraded", turned), ("Conflict", turned)]


def test_a_condition_keeps_its_time_until_it_turns():
    def times(report, before):
        return [one["lastTransitionTime"] for one in status_of(report, before, LATER)["status"]["conditions"]]

    before = status_of(REPORT, [], NOW)["status"]["conditions"]
    assert times(REPORT, before) == [NOW, NOW, NOW]
    assert times(replace(REPORT, problem=PROBLEM), before) == [LATER, NOW, NOW]


@pytest.mark.parametrize(
    ("changes", "free", "health"),
    [
        pytest.param({"graph": ONE_UNHEALTHY, "held": (HELD,)}, 6, "Degraded", id="that are unhealthy or held"),
        pytest.param({"problem": PROBLEM}, 0, "Healthy", id="all, where there is a problem"),
    ],
)
def test_not_free_are_gpus(changes, free, health):
    status = status_of(replace(REPORT, **changes), [], NOW)["status"]
    assert (status["gpus"], status["free"], status["health"]) == (8, free, health)


def test_links_on_which_two_gpus_disagree_degrade_the_node():
    (_, degraded, _) = conditions_of(replace(REPORT, graph=replace(GRAPH, uneven=((0, 3),))))
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
