"""A cluster that lets pods of the system's PriorityClasses only into namespaces with a quota for them (GKE's default)."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from kubernetes import client

from tests.support.chart import CHART
from tests.support.cluster.own_cluster import own_cluster
from tests.support.turns import in_turn
from tools.kube import simulated
from tools.kube.components import control_plane
from tools.kube.parts import NAMESPACE, RELEASE, STAND_INS
from tools.kube.session import ClusterSession, eventually

pytestmark = in_turn(0)

CRITICAL = ["system-node-critical", "system-cluster-critical"]
CONFIG = "apiserver.config.k8s.io/v1"
LIMITED = {"resource": "pods", "matchScopes": [{"scopeName": "PriorityClass", "operator": "In", "values": CRITICAL}]}


@pytest.fixture
def closed(tmp_path: Path) -> Iterator[ClusterSession]:
    with own_cluster(tmp_path, simulated.machines(1)) as cluster:
        limits = {"apiVersion": CONFIG, "kind": "ResourceQuotaConfiguration", "limitedResources": [LIMITED]}
        plugins = [{"name": "ResourceQuota", "configuration": limits}]
        file = tmp_path / "admission.yaml"
        file.write_text(yaml.safe_dump({"apiVersion": CONFIG, "kind": "AdmissionConfiguration", "plugins": plugins}))
        plane, more = cluster.plane, {"kube-apiserver": (f"--admission-control-config-file={file}",)}
        _, api_server, *_ = control_plane(cluster.find, plane.addresses, plane.keys, plane.folder, more=more)
        cluster.kill("kube-apiserver")
        cluster.start(api_server)
        yield cluster


def test_the_charts_pods_are_let_in_and_those_of_others_are_not(closed: ClusterSession) -> None:
    spec = {"priorityClassName": CRITICAL[0], "containers": [{"name": "c", "image": "i"}]}
    with pytest.raises(client.ApiException, match="insufficient quota to match these scopes"):
        closed.core.create_namespaced_pod("default", {"metadata": {"name": "critical"}, "spec": spec})
    where = (f"--kubeconfig={closed.kubeconfig}", f"--namespace={NAMESPACE}", "--create-namespace", "--timeout=90s")
    settings = [f"--set={name}={value}" for name, value in STAND_INS.items()]
    command = [str(closed.find("helm")), "install", RELEASE, str(CHART), "--wait", *where, *settings]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    pods = eventually(lambda: closed.core.list_namespaced_pod(NAMESPACE).items, "pods")
    assert {pod.spec.priority_class_name for pod in pods} == set(CRITICAL)
