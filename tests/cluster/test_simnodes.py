"""The stand-in for kubelets and device plugins of simulated nodes, on the real API server."""

from collections.abc import Iterator
from typing import Any

import pytest

from kompakt_core import contract
from kompakt_core.topology.describe import read_description
from kompakt_core.topology.wire import graph_from_spec
from tools.kube import kwok
from tools.kube.session import ClusterSession, eventually, stays

GROUP = (contract.GROUP, contract.VERSION, contract.TOPOLOGY_PLURAL)
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
    found = cluster.custom.list_cluster_custom_object(*GROUP, field_selector=f"metadata.name={name}")["items"]
    return dict(found[0]) if found else {}


def gpus_of(cluster: ClusterSession, node: str) -> list[str]:
    return [gpu["uuid"] for gpu in topology(cluster, node)["spec"]["gpus"]]


def held(cluster: ClusterSession, node: str) -> dict[str, set[str]]:
    """GPUs by pod, as status.held has them."""
    by_pod: dict[str, set[str]] = {}
    for entry in topology(cluster, node)["status"].get("held", []):
        by_pod.setdefault(entry["pod"], set()).add(entry["uuid"])
    return by_pod


def create(cluster: ClusterSession, namespace: str, name: str, gpus: int, node: str | None = None) -> None:
    limits = {contract.RESOURCE: str(gpus)}
    container = {"name": "c", "image": "none", "resources": {"limits": limits}}
    spec = {"containers": [container], "schedulerName": "nobody", "tolerations": [{"operator": "Exists"}], "nodeName": node}
    cluster.core.create_namespaced_pod(namespace, {"metadata": {"name": name}, "spec": spec})


def bind(cluster: ClusterSession, namespace: str, name: str, node: str, gpus: list[str]) -> None:
    meta = {"name": name, "annotations": {contract.ANN_GPUS: ",".join(gpus)}}
    body = {"metadata": meta, "target": {"kind": "Node", "apiVersion": "v1", "name": node}}
    cluster.core.create_namespaced_binding(namespace, body, _preload_content=False).read()


def annotation(cluster: ClusterSession, namespace: str, name: str, key: str) -> str:
    return str((cluster.core.read_namespaced_pod(name, namespace).metadata.annotations or {}).get(key, ""))


def test_the_label_becomes_link_graph_owner_and_allocatable_gpus(plugins: ClusterSession, node: str) -> None:
    found, machine = topology(plugins, node), plugins.core.read_node(node)
    assert graph_from_spec(found["spec"]) == read_description(MACHINE, node)
    assert found["spec"]["nodeUID"] == found["metadata"]["ownerReferences"][0]["uid"] == machine.metadata.uid
    eventually(lambda: plugins.core.read_node(node).status.allocatable.get(contract.RESOURCE) == "8", "8 allocatable GPUs")


def test_a_bound_pod_holds_what_is_written_on_it(plugins: ClusterSession, node: str, namespace: str) -> None:
    chosen = [gpus_of(plugins, node)[index] for index in (6, 1)]
    create(plugins, namespace, "a", 2)
    bind(plugins, namespace, "a", node, chosen)
    eventually(lambda: held(plugins, node) == {"a": set(chosen)}, "the pod's GPUs held")
    stays(lambda: (held(plugins, node), annotation(plugins, namespace, "a", contract.ANN_GPUS)), 3)
    assert annotation(plugins, namespace, "a", contract.ANN_GPUS) == ",".join(chosen)
    plugins.core.delete_namespaced_pod("a", namespace, grace_period_seconds=0)
    eventually(lambda: not held(plugins, node), "the GPUs given back")


def test_a_pod_bound_past_the_extender_is_reported(plugins: ClusterSession, node: str, namespace: str) -> None:
    create(plugins, namespace, "past", 3, node)
    eventually(lambda: annotation(plugins, namespace, "past", contract.ANN_GPUS), "GPUs written on the pod")
    written = set(annotation(plugins, namespace, "past", contract.ANN_GPUS).split(","))
    assert len(written) == 3
    assert held(plugins, node)["past"] == written
    events = plugins.core.list_namespaced_event(namespace, field_selector="reason=GPUSetReported").items
    assert [event.involved_object.name for event in events] == ["past"]


def test_gpus_that_are_held_are_not_held_again_and_the_pod_says_so(plugins: ClusterSession, node: str, namespace: str) -> None:
    chosen = gpus_of(plugins, node)[:2]
    for name in ("first", "second"):
        create(plugins, namespace, name, 2)
        bind(plugins, namespace, name, node, chosen)
        eventually(lambda name=name: name in held(plugins, node), f"{name} holds GPUs")  # type: ignore[misc]
    sets = held(plugins, node)
    assert sets["first"] == set(chosen)
    assert not sets["first"] & sets["second"]
    eventually(
        lambda: set(annotation(plugins, namespace, "second", contract.ANN_GPUS).split(",")) == sets["second"],
        "a corrected pod",
    )


def test_a_pod_that_does_not_fit_fails_as_a_kubelet_would_let_it(plugins: ClusterSession, node: str, namespace: str) -> None:
    create(plugins, namespace, "big", 9, node)
    eventually(lambda: plugins.core.read_namespaced_pod("big", namespace).status.phase == "Failed", "a failed pod")
    assert plugins.core.read_namespaced_pod("big", namespace).status.reason == "UnexpectedAdmissionError"
    assert "big" not in held(plugins, node)


def test_a_deleted_topology_comes_back(plugins: ClusterSession, node: str) -> None:
    before = topology(plugins, node)["metadata"]["uid"]
    plugins.custom.delete_cluster_custom_object(*GROUP, node)
    eventually(lambda: topology(plugins, node).get("status", {}).get("gpus") == 8, "the topology again")
    assert topology(plugins, node)["metadata"]["uid"] != before


def test_nothing_is_written_while_nothing_happens(plugins: ClusterSession, node: str) -> None:
    stays(lambda: topology(plugins, node)["metadata"]["resourceVersion"], 4)
