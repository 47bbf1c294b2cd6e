"""Who may take our gate off pods of gangs of others where no planner does: members of one group, and nothing else with it."""

import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from kompakt_core import contract as c
from tests.support.cluster.gangs import plain_pod
from tests.support.cluster.machines import MACHINES
from tests.support.cluster.own_cluster import own_cluster
from tests.support.turns import in_turn
from tools.kube.session import ClusterSession, KubectlFailed

pytestmark = in_turn(1)

GROUP, NAMESPACE = "on-call", "default"
# All may do everything by RBAC: what is refused, admission refuses.
MEMBER = ("--as=ann", f"--as-group={GROUP}", "--as-group=system:masters")
OTHER = ("--as=mallory", "--as-group=system:masters")
REFUSED = "only kompakt's planner removes the scheduling gate"
OWNER = {"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "u"}
OPEN = {"op": "remove", "path": "/spec/schedulingGates/1"}


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterSession]:
    """A cluster whose policies name such a group, and nobody at work."""
    with own_cluster(tmp_path_factory.mktemp("broken"), MACHINES) as cluster:
        cluster.parts.install({"admission.breakGlassGroup": GROUP})
        yield cluster


@pytest.fixture
def gated(broken: ClusterSession) -> Iterator[str]:
    """A pod of a gang behind our gate and one of others."""
    made = plain_pod("gated", size=2)
    made["spec"]["schedulingGates"] = [{"name": "example.com/quota"}, {"name": c.GATE}]
    broken.core.create_namespaced_pod(NAMESPACE, made)
    yield "gated"
    broken.core.delete_namespaced_pod("gated", NAMESPACE, grace_period_seconds=0)


def patch(cluster: ClusterSession, who: tuple[str, ...], pod: str, *operations: dict[str, Any]) -> None:
    """Raises KubectlFailed."""
    cluster.kubectl(*who, "patch", "pod", pod, f"--namespace={NAMESPACE}", "--type=json", f"--patch={json.dumps(operations)}")


def gates(cluster: ClusterSession, pod: str) -> list[str]:
    return [gate.name for gate in cluster.core.read_namespaced_pod(pod, NAMESPACE).spec.scheduling_gates or ()]


def test_a_member_takes_the_gate_off_and_no_other_one(broken: ClusterSession, gated: str) -> None:
    patch(broken, MEMBER, gated, OPEN)
    assert gates(broken, gated) == ["example.com/quota"]


@pytest.mark.parametrize(
    "more",
    [
        {"op": "add", "path": "/metadata/labels/team", "value": "ours"},
        {"op": "add", "path": f"/metadata/annotations/{c.ANN_PATTERN.replace('/', '~1')}", "value": "Ring"},
        {"op": "add", "path": "/metadata/finalizers", "value": ["example.com/stays"]},
        {"op": "add", "path": "/metadata/ownerReferences", "value": [OWNER]},
        {"op": "replace", "path": "/spec/containers/0/image", "value": "another"},
        {"op": "add", "path": "/spec/activeDeadlineSeconds", "value": 60},
        {"op": "add", "path": "/spec/tolerations/0", "value": {"key": "reserved", "operator": "Exists"}},
        {"op": "add", "path": "/spec/nodeSelector", "value": {"zone": "a"}},
        {"op": "remove", "path": "/spec/schedulingGates/0"},
    ],
    ids=lambda more: more["path"],
)
def test_a_member_changes_nothing_else_with_it(broken: ClusterSession, gated: str, more: dict[str, Any]) -> None:
    with pytest.raises(KubectlFailed, match=f"{REFUSED}.*; members of {GROUP} may .* if the request changes nothing else"):
        patch(broken, MEMBER, gated, OPEN, more)
    assert len(gates(broken, gated)) == 2
    patch(broken, (*MEMBER, "--dry-run=server"), gated, more)  # by itself it is nobody's but RBAC's to refuse


@pytest.mark.parametrize("who", [MEMBER, OTHER], ids=["member", "other"])
@pytest.mark.parametrize("way", ["status", "resize"])
def test_no_subresource_takes_it_off(broken: ClusterSession, gated: str, who: tuple[str, ...], way: str) -> None:
    with suppress(KubectlFailed):
        patch(broken, (*who, f"--subresource={way}"), gated, OPEN)
    assert len(gates(broken, gated)) == 2


def test_one_who_is_no_member_does_not_take_it_off(broken: ClusterSession, gated: str) -> None:
    with pytest.raises(KubectlFailed, match=REFUSED):
        patch(broken, OTHER, gated, OPEN)
    assert len(gates(broken, gated)) == 2


def test_the_gate_of_a_jobs_worker_stays(broken: ClusterSession) -> None:
    worker = plain_pod("worker", size=2)
    worker["metadata"]["labels"] = {c.LABEL_JOB_UID: "u"}
    worker["spec"] |= {"schedulerName": c.SCHEDULER_NAME, "schedulingGates": [{"name": c.GATE}]}
    broken.core.create_namespaced_pod(NAMESPACE, worker)
    try:
        with pytest.raises(KubectlFailed, match=REFUSED):
            patch(broken, MEMBER, "worker", OPEN | {"path": "/spec/schedulingGates/0"})
    finally:
        broken.core.delete_namespaced_pod("worker", NAMESPACE, grace_period_seconds=0)
