"""What a node says and offers in good and bad times."""

from dataclasses import replace

import pytest

from kompakt_core.errors import InvalidInput
from kompakt_core.topology.wire import graph_to_spec
from kompakt_device_plugin.advertisement import NodeReading, advertise, only, other_owner
from kompakt_device_plugin.source import Quiet


class Text(Quiet):
    name = "text"


TEXT = Text()
NODE = {"metadata": {"name": "node-1", "uid": "uid-node"}}


def owned_by(**capacity):
    return {**NODE, "status": {"capacity": {"nvidia.com/gpu": "0", **capacity}}}


def test_a_good_description_is_offered(dgx1):
    seen = advertise(NodeReading(owned_by()), dgx1, TEXT)
    assert (seen.offered, seen.problem, seen.report.graph) == (dgx1, None, dgx1)


def test_a_broken_description_of_a_new_node_says_and_offers_nothing():
    seen = advertise(NodeReading(NODE), InvalidInput("line 3: what is this"), TEXT)
    assert (seen.report, seen.offered, seen.problem.reason) == (None, None, "BrokenDescription")


def test_a_description_that_breaks_later_keeps_the_spec_and_turns_not_ready(dgx1):
    live = {"spec": graph_to_spec(dgx1, node_uid="uid-node", source="text")}
    seen = advertise(NodeReading(NODE, live), InvalidInput("line 3: what is this"), TEXT)
    assert seen.report.graph == dgx1
    assert (seen.offered, seen.report.problem.message) == (None, "line 3: what is this")


def test_a_topology_that_nobody_can_read_counts_as_absent():
    assert advertise(NodeReading(NODE, {"spec": {"gpus": "many"}}), InvalidInput("x"), TEXT).report is None
    assert advertise(NodeReading(NODE, {}), InvalidInput("x"), TEXT).report is None


def test_gpus_that_another_plugin_owns_are_reported_but_not_offered(dgx1):
    seen = advertise(NodeReading(owned_by(**{"nvidia.com/gpu": "8"})), dgx1, TEXT)
    assert seen.offered is None
    assert seen.report.other_owner == "nvidia.com/gpu"
    assert "offers nothing" in seen.problem.message


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


def test_told_which_gpus_are_its_own_a_node_offers_those_only_and_conflicts_with_nobody(dgx1):
    mine = [dgx1.gpus[i].uuid for i in (1, 4, 6)]
    for other in ({}, {"nvidia.com/gpu": "5"}):
        seen = advertise(NodeReading(owned_by(**other)), dgx1, TEXT, own=set(mine) | {"GPU-of-another-node"})
        assert [gpu.uuid for gpu in seen.offered.gpus] == mine
        assert seen.problem is None


def test_own_gpus_of_other_nodes_mean_nothing_here(dgx1):
    assert advertise(NodeReading(owned_by()), dgx1, TEXT, own={"GPU-of-another-node"}).offered == dgx1
    assert advertise(NodeReading(owned_by(**{"nvidia.com/gpu": "8"})), dgx1, TEXT, own={"GPU-of-another-node"}).offered is None


def test_a_part_of_a_graph_keeps_its_links_under_new_numbers(dgx1):
    part = only(dgx1, [dgx1.gpus[i].uuid for i in (1, 4, 6)])
    for a, b in ((0, 1), (0, 2), (1, 2)):
        was = dgx1.link((1, 4, 6)[a], (1, 4, 6)[b])
        assert part.link(a, b) == replace(was, a=a, b=b)


def test_gpus_in_mig_mode_are_not_to_be_had(dgx1):
    graph = replace(dgx1, gpus=(replace(dgx1.gpus[0], mig_enabled=True), *dgx1.gpus[1:]))
    offered = advertise(NodeReading(NODE), graph, TEXT).offered
    assert [gpu.health for gpu in offered.gpus] == ["Unhealthy", *["Healthy"] * 7]
    assert offered.gpus[0].health_reason == "MIG"
