"""The stand-in for kubelets and device plugins of simulated nodes, on the real API server."""

from collections.abc import Iterator
from typing import Any

import pytest

from kompakt_core import contract
from kompakt_core.topology.describe import read_description
from kompakt_core.topology.wire import graph_from_spec
from tests.support.cluster import reading
from tests.support.cluster.pods import gpu_pod
from tests.support.cluster.reading import topologies, written
from tools.kube import kwok
from tools.kube.session import ClusterSession, eventually, stays

MACHINE = "dgx1-v100"


@pytest.fixture(scope="module")
def node(plugins: ClusterSession) -> Iterator[str]:
    """A node of its own, tainted so that pods of other tests stay away."""
    name = "simnodes-test"
    plugins.core.create_node(kwok.node(name, 0, MACHINE, tainted=True))
    eventually(lambda: topology(plugins, name).get("status"), "a topology with status")
    yield name
    plugins.core.delete_node(name)
    eventually(lambda: not topology(plugins, name), "the topology gone with its node")


def topology(cluster: ClusterSession, name: str) -> dict[str, Any]:
    """The node's GPUTopology, empty where there is none."""
    return dict(topologies(cluster).get(name, {}))


def held(cluster: ClusterSession, node: str) -> dict[str, set[str]]:
    """GPUs by pod, as this node's status.held has them."""
    pods = {entry["pod"] for entry in topology(cluster, node)["status"].get("held", ())}
    return {pod: gpus for pod, gpus in reading.held(cluster).items() if pod in pods}


def create(cluster: ClusterSession, namespace: str, name: str, gpus: int, node: str | None = None) -> None:
    wanted = gpu_pod(name, gpus, schedulerName="nobody", tolerations=[{"operator": "Exists"}], nodeName=node)
    cluster.core.create_namespaced_pod(namespace, wanted)


def bind(cluster: ClusterSession, namespace: str, name: str, node: str, gpus: list[str]) -> None:
    meta = {"name": name, "annotations": {contract.ANN_GPUS: ",".join(gpus)}}
    body = {"metadata": meta, "target": {"kind": "Node", "apiVersion": "v1", "name": node}}
    cluster.core.create_namespaced_binding(namespace, body, _preload_content=False).read()


def gpus_on(cluster: ClusterSession, namespace: str, name: str) -> list[str]:
    return written(cluster.core.read_namespaced_pod(name, namespace))


def test_the_label_becomes_link_graph_owner_and_allocatable_gpus(plugins: ClusterSession, node: str) -> None:
    found, machine = topology(plugins, node), plugins.core.read_node(node)
    assert graph_from_spec(found["spec"]) == read_description(MACHINE, node)
    assert found["spec"]["nodeUID"] == found["metadata"]["ownerReferences"][0]["uid"] == machine.metadata.uid
    eventually(lambda: plugins.core.read_node(node).status.allocatable.get(contract.RESOURCE) == "8", "8 allocatable GPUs")


def test_pods_hold_what_is_written_on_them_and_never_what_others_hold(plugins: ClusterSession, node: str, namespace: str) -> None:
    """One is given GPUs, the next the same ones, a third is bound past the extender, and a fourth does not fit."""
    every = [gpu["uuid"] for gpu in topology(plugins, node)["spec"]["gpus"]]
    chosen = [every[index] for index in (6, 1)]
    for name in ("first", "second"):
        create(plugins, namespace, name, 2)
        bind(plugins, namespace, name, node, chosen)
        eventually(lambda name=name: name in held(plugins, node), f"{name} holds GPUs")  # type: ignore[misc]
    create(plugins, namespace, "past", 3, node)
    eventually(lambda: len(gpus_on(plugins, namespace, "past")) == 3, "GPUs written on the pod")
    create(plugins, namespace, "big", 9, node)
    eventually(lambda: plugins.core.read_namespaced_pod("big", namespace).status.phase == "Failed", "a failed pod")
    assert plugins.core.read_namespaced_pod("big", namespace).status.reason == "UnexpectedAdmissionError"

    sets = held(plugins, node)
    assert sets["first"] == set(chosen)
    assert sum(map(len, sets.values())) == len(set().union(*sets.values())) == 7
    assert gpus_on(plugins, namespace, "first") == chosen
    for name in ("second", "past"):
        eventually(lambda name=name: set(gpus_on(plugins, namespace, name)) == sets[name], f"{name} says what it holds")  # type: ignore[misc]
    events = plugins.core.list_namespaced_event(namespace, field_selector="reason=GPUSetReported").items
    assert [event.involved_object.name for event in events] == ["past"]
    stays(lambda: (topology(plugins, node)["metadata"]["resourceVersion"], gpus_on(plugins, namespace, "first")), 4)
    plugins.core.delete_namespaced_pod("first", namespace, grace_period_seconds=0)
    eventually(lambda: "first" not in held(plugins, node), "the GPUs given back")


def test_a_deleted_topology_comes_back(plugins: ClusterSession, node: str) -> None:
    before = topology(plugins, node)["metadata"]["uid"]
    plugins.custom.delete_cluster_custom_object(contract.GROUP, contract.VERSION, contract.TOPOLOGY_PLURAL, node)
    eventually(lambda: topology(plugins, node).get("status", {}).get("gpus") == 8, "the topology again")
    assert topology(plugins, node)["metadata"]["uid"] != before
