"""What a node says and offers in good and bad times."""

from kompakt_core.errors import InvalidInput
from kompakt_core.topology.wire import graph_to_spec
from kompakt_device_plugin.outlook import outlook

NODE = {"metadata": {"name": "node-1", "uid": "uid-node"}}


def owned_by(**capacity):
    return {**NODE, "status": {"capacity": {"nvidia.com/gpu": "0", **capacity}}}


def test_a_good_description_is_offered(dgx1):
    seen = outlook(owned_by(), None, dgx1, "text", ())
    assert (seen.offered, seen.problem, seen.report.graph) == (dgx1, None, dgx1)


def test_a_broken_description_of_a_new_node_says_and_offers_nothing():
    seen = outlook(NODE, None, InvalidInput("line 3: what is this"), "text", ())
    assert (seen.report, seen.offered, seen.problem.reason) == (None, None, "BrokenDescription")


def test_a_description_that_breaks_later_keeps_the_spec_and_turns_not_ready(dgx1):
    live = {"spec": graph_to_spec(dgx1, node_uid="uid-node", source="text")}
    seen = outlook(NODE, live, InvalidInput("line 3: what is this"), "text", ())
    assert seen.report.graph == dgx1
    assert (seen.offered, seen.report.problem.message) == (None, "line 3: what is this")


def test_a_topology_that_nobody_can_read_counts_as_absent():
    assert outlook(NODE, {"spec": {"gpus": "many"}}, InvalidInput("x"), "text", ()).report is None
    assert outlook(NODE, {}, InvalidInput("x"), "text", ()).report is None


def test_gpus_that_another_plugin_owns_are_reported_but_not_offered(dgx1):
    seen = outlook(owned_by(**{"nvidia.com/gpu": "8"}), None, dgx1, "text", ())
    assert seen.offered is None
    assert seen.report.other_owner == "nvidia.com/gpu"
    assert "offers nothing" in seen.problem.message
