"""The cluster the other tests stand on: what is real in it behaves as real, what is simulated as we say."""

import json
from pathlib import Path

import pytest

from tools.kube import control_plane
from tools.kube.components import node_kubeconfig
from tools.kube.kwok import EXIT_CODE_ANNOTATION, MESSAGE_ANNOTATION, SECONDS_ANNOTATION
from tools.kube.processes import Process, boot_id, read_records
from tools.kube.session import ClusterSession, KubectlFailed, eventually


def plain_pod(name: str, annotations: dict[str, str] | None = None, **spec: object) -> dict[str, object]:
    return {
        "metadata": {"name": name, "annotations": annotations or {}},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "simulated"}], **spec},
    }


def test_simulated_nodes_are_ready(cluster: ClusterSession) -> None:
    def ready() -> set[str]:
        nodes = cluster.core.list_node().items
        return {
            n.metadata.name for n in nodes if any(c.type == "Ready" and c.status == "True" for c in n.status.conditions or ())
        }

    eventually(lambda: ready() == {"dgx-0", "dgx-1", "pcie-0"}, "three nodes Ready")


def test_a_simulated_pod_runs_and_ends_as_its_annotations_say(cluster: ClusterSession, namespace: str) -> None:
    endings = {SECONDS_ANNOTATION: "0.2", EXIT_CODE_ANNOTATION: "7", MESSAGE_ANNOTATION: '{"kompakt":1}'}
    cluster.core.create_namespaced_pod(namespace, plain_pod("fails", endings))
    cluster.core.create_namespaced_pod(namespace, plain_pod("succeeds", {SECONDS_ANNOTATION: "0.2"}))
    cluster.core.create_namespaced_pod(namespace, plain_pod("stays"))

    def phases() -> dict[str, str]:
        return {pod.metadata.name: pod.status.phase for pod in cluster.core.list_namespaced_pod(namespace).items}

    expected = {"fails": "Failed", "succeeds": "Succeeded", "stays": "Running"}
    eventually(lambda: phases() == expected, f"phases {expected}")
    ended = cluster.core.read_namespaced_pod("fails", namespace).status.container_statuses[0].state.terminated
    assert (ended.exit_code, json.loads(ended.message)) == (7, {"kompakt": 1})


def test_a_gated_pod_is_left_alone_until_its_gate_goes(cluster: ClusterSession, namespace: str) -> None:
    cluster.core.create_namespaced_pod(namespace, plain_pod("gated", schedulingGates=[{"name": "kompakt.dev/placement"}]))

    def reason() -> str | None:
        conditions = cluster.core.read_namespaced_pod("gated", namespace).status.conditions or []
        return next((c.reason for c in conditions if c.type == "PodScheduled"), None)

    eventually(lambda: reason() == "SchedulingGated", "the pod is reported as gated")
    assert cluster.core.read_namespaced_pod("gated", namespace).spec.node_name is None


def test_an_account_without_rights_is_refused(cluster: ClusterSession) -> None:
    kubeconfig = cluster.parts.account_kubeconfig("operator")
    with pytest.raises(KubectlFailed, match="forbidden"):
        cluster.kubectl("delete", "node", "dgx-0", kubeconfig=kubeconfig)


def test_a_node_may_not_change_another_node(cluster: ClusterSession) -> None:
    mine = node_kubeconfig(cluster.plane.keys, cluster.plane.addresses, "dgx-0")
    cluster.kubectl("annotate", "node", "dgx-0", "checked=yes", kubeconfig=mine)
    with pytest.raises(KubectlFailed, match="forbidden"):
        cluster.kubectl("annotate", "node", "dgx-1", "checked=yes", kubeconfig=mine)


def test_a_pid_that_another_process_has_now_is_not_touched(cluster: ClusterSession, tmp_path: Path) -> None:
    kwok = cluster.plane.processes["kwok"]
    recycled = Process(kwok.name, kwok.pid, kwok.started + 1, boot_id(), kwok.log)
    control_plane.write_records(tmp_path / "records.json", [recycled])  # type: ignore[attr-defined]
    assert not read_records(tmp_path / "records.json")[0].alive()
    control_plane.remove_leftovers(tmp_path, print)
    assert kwok.alive()


def test_the_definitions_are_served(cluster: ClusterSession) -> None:
    served = cluster.kubectl("api-resources", "--api-group=kompakt.dev", "--no-headers")
    assert "TrainingJob" in served
    assert "GPUTopology" in served
