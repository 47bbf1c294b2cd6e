"""What the API server refuses of pods with the label of a gang, and what it adds to the others."""

import json
from typing import Any

import pytest
from kubernetes.client import ApiException

from kompakt_core import contract as c
from tests.support.cluster.gangs import adds_a_gate, plain_pod
from tools.kube.admission import MUTATING, POLICIES, VALIDATING, await_policies, plural
from tools.kube.session import ClusterSession, KubectlFailed, eventually

NAMESPACE = "default"


@pytest.mark.parametrize(
    ("pod", "words"),
    [
        (plain_pod("p", label="Training"), "names a gang by lowercase letters"),
        (plain_pod("p", size=0), f"needs the annotation {c.ANN_GANG_SIZE}, from 1 to 4096"),
        (plain_pod("p", size=10000), f"needs the annotation {c.ANN_GANG_SIZE}, from 1 to 4096"),
        (plain_pod("p", **{c.ANN_REQUIRED_LEVEL: "Room"}), "is Machine, Rack, Block or Cluster"),
    ],
)
def test_a_pod_whose_gang_cannot_be_read_is_refused_where_it_is_made(
    guarded: ClusterSession, pod: dict[str, Any], words: str
) -> None:
    with pytest.raises(ApiException, match=words):
        guarded.core.create_namespaced_pod(NAMESPACE, pod, dry_run="All")


def test_a_pod_does_not_change_its_gang(guarded: ClusterSession) -> None:
    guarded.core.create_namespaced_pod(NAMESPACE, plain_pod("stays", size=2))
    for metadata in (
        {"labels": {c.LABEL_GANG: "other"}},
        {"annotations": {c.ANN_GANG_SIZE: "1"}},
        {"labels": {c.LABEL_GANG: None}},
    ):
        with pytest.raises(ApiException, match="a pod stays in its gang"):
            guarded.core.patch_namespaced_pod("stays", NAMESPACE, {"metadata": metadata})
    guarded.core.delete_namespaced_pod("stays", NAMESPACE)


@pytest.mark.parametrize("name", ["", "default-scheduler", c.SCHEDULER_NAME])
def test_pods_of_gangs_get_kompakts_scheduler_and_gate(guarded: ClusterSession, name: str) -> None:
    made = plain_pod("p", size=2)
    made["spec"] |= {"schedulerName": name, "schedulingGates": [{"name": "example.com/quota"}]}
    found = guarded.core.create_namespaced_pod(NAMESPACE, made, dry_run="All").spec
    assert found.scheduler_name == c.SCHEDULER_NAME
    assert [gate.name for gate in found.scheduling_gates] == ["example.com/quota", c.GATE]


def test_a_gate_that_the_pod_has_already_is_not_given_twice(guarded: ClusterSession) -> None:
    made = plain_pod("p", size=2)
    made["spec"]["schedulingGates"] = [{"name": c.GATE}]
    found = guarded.core.create_namespaced_pod(NAMESPACE, made, dry_run="All").spec
    assert [gate.name for gate in found.scheduling_gates] == [c.GATE]


def test_nobody_else_writes_a_gang(guarded: ClusterSession) -> None:
    body = {"apiVersion": c.API_VERSION, "kind": c.GANG_KIND, "metadata": {"name": "mine"}, "spec": {"size": 2}}
    mallory = ("--as=mallory", "--as-group=system:masters", f"--namespace={NAMESPACE}")
    with pytest.raises(KubectlFailed, match="only kompakt's scheduler writes a Gang"):
        guarded.kubectl(*mallory, "create", "-f", "-", stdin=json.dumps(body))


@pytest.mark.parametrize("kind", [VALIDATING, MUTATING])
def test_a_policy_counts_as_soon_as_it_was_waited_for(guarded: ClusterSession, kind: str) -> None:
    """Or tests would ask before the API server has read the last of the chart's policies, as they did."""
    named, counts = {VALIDATING: ("kompakt-admission-pods", refuses), MUTATING: ("kompakt-admission-gangs", adds_a_gate)}[kind]
    (policy,) = [one for one in guarded.parts.chart if (one["kind"], one["metadata"]["name"]) == (kind, named)]
    guarded.kubectl("delete", kind, named)
    eventually(lambda: not counts(guarded), "the policy out of force")
    guarded.custom.create_cluster_custom_object(POLICIES, "v1", plural(kind), policy)
    await_policies(guarded.parts.api, guarded.parts.chart, NAMESPACE)
    assert counts(guarded)


def refuses(cluster: ClusterSession) -> bool:
    try:
        cluster.core.create_namespaced_pod(NAMESPACE, plain_pod("p", label="Training"), dry_run="All")
    except ApiException as error:
        return "names a gang by lowercase letters" in error.body
    return False
