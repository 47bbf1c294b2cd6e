"""What a node says and offers in good and bad times."""

from dataclasses import replace

import pytest

from kompakt_core.errors import InvalidInput
from kompakt_core.topology.graph import UNHEALTHY
from kompakt_core.topology.wire import graph_to_spec
from kompakt_device_plugin.advertisement import NodeReading, advertise, only, other_owner
from kompakt_device_plugin.cdi import CdiNames
from kompakt_device_plugin.report import conditions_of, counted
from kompakt_device_plugin.source import Quiet
from tests.support.device_plugin.pods import ALL, GRAPH


class Text(Quiet):
    name = "text"


TEXT = Text()
NODE = {"metadata": {"name": "node-1", "uid": "uid-node"}}


def owned_by(**capacity):
    return {**NODE, "status": {"capacity": {"nvidia.com/gpu": "0", **capacity}}}


LIVE = {"spec": graph_to_spec(GRAPH, node_uid="uid-node", source="text")}
BROKEN = InvalidInput("line 3: what is this")


def test_a_good_description_is_offered():
    seen = advertise(NodeReading(owned_by()), GRAPH, TEXT)
    assert (seen.offered, seen.problem, seen.report.graph) == (GRAPH, None, GRAPH)


@pytest.mark.parametrize("live", [None, {}, {"spec": {"gpus": "many"}}], ids=["of a new node", "unread", "that nobody can read"])
def test_a_broken_description_says_and_offers_nothing_beside_a_topology(live):
    seen = advertise(NodeReading(NODE, live), BROKEN, TEXT)
    assert (seen.report, seen.offered, seen.problem.reason) == (None, None, "BrokenDescription")


def test_a_description_that_breaks_later_keeps_the_spec_and_turns_not_ready():
    seen = advertise(NodeReading(NODE, LIVE), BROKEN, TEXT)
    assert seen.report.graph == GRAPH
    assert (seen.offered, seen.report.problem.message) == (None, "line 3: what is this")


def test_gpus_that_another_plugin_owns_are_reported_but_not_offered():
    seen = advertise(NodeReading(owned_by(**{"nvidia.com/gpu": "8"})), GRAPH, TEXT)
    assert (seen.offered, seen.report.other_owner) == (None, "nvidia.com/gpu")
    assert "offers nothing" in seen.problem.message


def named(*gpus, unusable=""):
    return CdiNames({gpu: f"nvidia.com/gpu={gpu}" for gpu in gpus}, unusable)


def test_gpus_that_all_can_be_had_by_cdi_are_offered_as_they_are():
    seen = advertise(NodeReading(NODE), GRAPH, TEXT, cdi=named(*ALL))
    assert (seen.offered, seen.problem, seen.shortage) == (GRAPH, None, None)


def test_a_gpu_that_no_specification_names_is_reported_and_given_to_nobody():
    seen = advertise(NodeReading(NODE), GRAPH, TEXT, cdi=named(*ALL[:3], *ALL[4:]))
    sick = [(gpu.uuid, gpu.health_reason) for gpu in seen.offered.gpus if gpu.health == UNHEALTHY]
    assert sick == [(ALL[3], "CDISpecMissing")]
    assert (seen.problem, seen.shortage.reason) == (None, "CDISpecMissing")
    assert f"names {ALL[3]}, so no container gets them" in seen.shortage.message
    degraded = conditions_of(seen.report)[1]
    assert (degraded.status, degraded.reason, degraded.message) == (True, "CDISpecMissing", "unhealthy: GPU 3 (CDISpecMissing)")


@pytest.mark.parametrize(
    ("cdi", "words"),
    [(named(), f"no CDI specification of this node names {ALL[0]}"), (named(*ALL, unusable="too old"), "too old")],
)
def test_a_node_whose_containers_can_get_no_gpu_offers_nothing_and_says_why(cdi, words):
    seen = advertise(NodeReading(NODE), GRAPH, TEXT, cdi=cdi)
    assert (seen.offered, seen.problem.type, seen.problem.reason) == (None, "Ready", "CDISpecMissing")
    assert seen.problem.message.startswith(words)
    assert counted(seen.report)["free"] == 0


def test_what_is_wrong_with_a_gpu_itself_is_said_before_its_specification():
    sick = replace(GRAPH, gpus=(replace(GRAPH.gpus[0], health=UNHEALTHY, health_reason="ECC"), *GRAPH.gpus[1:]))
    seen = advertise(NodeReading(NODE), sick, TEXT, cdi=named(*ALL[1:]))
    assert seen.offered == sick


def piece(driver="gpu.nvidia.com", node="node-1", devices=({"name": "gpu-0"},)):
    """A ResourceSlice."""
    return {"metadata": {"name": "slice-a"}, "spec": {"driver": driver, "nodeName": node, "devices": list(devices)}}


@pytest.mark.parametrize("resource", ["nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/mig-1g.5gb"])
def test_every_resource_of_the_other_plugin_is_a_conflict(resource):
    assert other_owner(NodeReading(owned_by(**{resource: "1"}))) == resource
    assert other_owner(NodeReading(owned_by(**{resource: "0"}))) == ""


@pytest.mark.parametrize(
    ("found", "owner"),
    [
        (piece(), "ResourceSlice slice-a of gpu.nvidia.com"),
        (piece(driver="compute-domain.nvidia.com"), ""),
        (piece(node="node-2"), ""),
        (piece(devices=()), ""),
        ({"metadata": {"name": "empty"}}, ""),
    ],
)
def test_devices_of_nvidias_dra_driver_on_this_node_are_a_conflict(found, owner):
    assert other_owner(NodeReading(owned_by(), slices=[found])) == owner


MINE = [ALL[i] for i in (1, 4, 6)]


@pytest.mark.parametrize(
    ("own", "others", "offered"),
    [
        pytest.param(MINE, "0", MINE, id="only those"),
        pytest.param(MINE, "5", MINE, id="only those, in conflict with nobody"),
        pytest.param([], "0", list(ALL), id="all, where its own are none of this node's"),
        pytest.param([], "8", None, id="none then beside another plugin"),
    ],
)
def test_told_which_gpus_are_its_own_a_node_offers(own, others, offered):
    seen = advertise(NodeReading(owned_by(**{"nvidia.com/gpu": others})), GRAPH, TEXT, own={*own, "GPU-of-another-node"})
    assert (seen.offered and [gpu.uuid for gpu in seen.offered.gpus]) == offered
    assert (seen.problem is None) == (offered is not None)


def test_a_part_of_a_graph_keeps_its_links_under_new_numbers():
    part = only(GRAPH, MINE)
    for a, b in ((0, 1), (0, 2), (1, 2)):
        assert part.link(a, b) == replace(GRAPH.link((1, 4, 6)[a], (1, 4, 6)[b]), a=a, b=b)


def test_gpus_in_mig_mode_are_not_to_be_had():
    graph = replace(GRAPH, gpus=(replace(GRAPH.gpus[0], mig_enabled=True), *GRAPH.gpus[1:]))
    offered = advertise(NodeReading(NODE), graph, TEXT).offered
    assert [gpu.health for gpu in offered.gpus] == ["Unhealthy", *["Healthy"] * 7]
    assert offered.gpus[0].health_reason == "MIG"
