"""`kompakt doctor cluster` on a real control plane: nothing to complain of while all is well, each fault named with a cure."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from kompakt_cli import main
from kompakt_core import contract as c
from kompakt_core.errors import InvalidInput
from tests.support.cluster.machines import MACHINES
from tests.support.cluster.own_cluster import own_cluster
from tests.support.turns import in_turn
from tools.kube.parts import NAMESPACE
from tools.kube.session import ClusterSession, eventually

pytestmark = in_turn(1)

# The simulated nodes' machines under their own names, as the chart would have them.
DESCRIBED = {f"devicePlugin.machines.{name}": name for name in {machine.machine for machine in MACHINES}}
WORKLOADS = ("ConfigMap", "Deployment", "DaemonSet", "Service")
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kompakt-system/leases"
Finding = dict[str, str]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterSession]:
    """The chart's own Deployments and DaemonSet on simulated nodes; the processes at work go by the names of their pods."""
    with own_cluster(tmp_path_factory.mktemp("doctor"), MACHINES) as cluster:
        cluster.parts.install(DESCRIBED)
        objects = [one for one in cluster.parts.chart if one["kind"] in WORKLOADS and "hook" not in str(one["metadata"])]
        cluster.kubectl("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump_all(objects))
        cluster.start(cluster.parts.simulated_plugins())
        eventually(lambda: all(ready(cluster, part) for part in ("operator", "scheduler", "device-plugin")), "all pods ready")
        cluster.start_pair(pods(cluster, "scheduler")[0])
        cluster.start(cluster.parts.operator(pods(cluster, "operator")[0]))
        eventually(lambda: all(holder(cluster, name) for name in (c.OPERATOR_LEASE, c.SCHEDULER_LEASE)), "both Leases held")
        yield cluster


def pods(cluster: ClusterSession, part: str) -> list[str]:
    found = cluster.core.list_namespaced_pod(NAMESPACE, label_selector=f"app.kubernetes.io/component={part}").items
    return sorted(pod.metadata.name for pod in found)


def ready(cluster: ClusterSession, part: str) -> bool:
    found = cluster.core.list_namespaced_pod(NAMESPACE, label_selector=f"app.kubernetes.io/component={part}").items
    states = [one for pod in found for one in pod.status.conditions or () if one.type == "Ready"]
    return bool(found) and len(states) == len(found) and all(one.status == "True" for one in states)


def holder(cluster: ClusterSession, name: str) -> str:
    items = cluster.parts.api.list(LEASES)["items"]
    return next((str(one["spec"].get("holderIdentity") or "") for one in items if one["metadata"]["name"] == name), "")


def doctor(cluster: ClusterSession, *words: str) -> tuple[int, list[Finding]]:
    """Exit code and findings."""
    words = ("doctor", "cluster", "-o", "json", f"--kubeconfig={cluster.kubeconfig}", *words)
    done = CliRunner().invoke(main.application(), words)
    assert done.stdout, done.exception
    return done.exit_code, list(json.loads(done.stdout)["findings"])


def problems(cluster: ClusterSession) -> dict[str, Finding]:
    """By check."""
    return {one["check"]: one for one in doctor(cluster)[1] if one["health"] == "problem"}


def test_nothing_is_wrong_with_a_cluster_at_work(installed: ClusterSession) -> None:
    eventually(lambda: not problems(installed), "the doctor is content")
    code, findings = doctor(installed)
    assert code == 0
    unwell = [one for one in findings if one["health"] != "ok"]
    assert unwell == []
    assert {one["check"] for one in findings} >= {"Kubernetes", "CRD schemas", "roles of kompakt", "link graphs", "pods"}


@pytest.fixture
def lost_lease(installed: ClusterSession) -> Iterator[None]:
    """The operator crashed, and somebody deleted its Lease."""
    name = pods(installed, "operator")[0]
    installed.kill(name)
    installed.kubectl("delete", "lease", c.OPERATOR_LEASE, "-n", NAMESPACE)
    yield
    installed.start(installed.parts.operator(name))
    eventually(lambda: holder(installed, c.OPERATOR_LEASE), "the Lease held again")


@pytest.mark.usefixtures("lost_lease")
def test_a_lease_that_nobody_holds(installed: ClusterSession) -> None:
    code, findings = doctor(installed)
    found = next(one for one in findings if one["check"] == "Lease kompakt-operator")
    assert (code, found["health"]) == (1, "problem")
    assert "kubectl logs -n kompakt-system -l app.kubernetes.io/component=operator" in found["cure"]


@pytest.fixture
def shared_node(installed: ClusterSession) -> Iterator[str]:
    """Another device plugin offers GPUs of a node of ours."""
    path = {"op": "add", "path": "/status/capacity/nvidia.com~1gpu", "value": "8"}
    capacity(installed, path)
    yield "dgx-1"
    capacity(installed, {"op": "remove", "path": path["path"]})


def capacity(cluster: ClusterSession, change: dict[str, str]) -> None:
    cluster.kubectl("patch", "node", "dgx-1", "--subresource=status", "--type=json", "-p", json.dumps([change]))


def test_a_node_that_two_device_plugins_offer(installed: ClusterSession, shared_node: str) -> None:
    found = problems(installed)["other device plugins"]
    assert shared_node in found["found"]
    assert "nvidia.com/gpu beside kompakt.dev/gpu" in found["found"]
    assert "devicePlugin.ownGPUs" in found["cure"]


@pytest.fixture
def broken_graph(installed: ClusterSession) -> Iterator[str]:
    """A GPUTopology lacks a link, as after a hand edit; the plugin that would mend it is away."""
    installed.kill("simulated-plugins")
    path = f"/apis/{c.API_VERSION}/{c.TOPOLOGY_PLURAL}/dgx-0"
    before: dict[str, Any] = installed.parts.api.get(path)
    installed.parts.api.merge(path, {"spec": {"links": before["spec"]["links"][1:]}})
    yield "dgx-0"
    installed.parts.api.merge(path, {"spec": {"links": before["spec"]["links"]}})
    installed.restart("simulated-plugins")


def test_a_link_graph_that_cannot_be_read(installed: ClusterSession, broken_graph: str) -> None:
    found = problems(installed)["link graphs"]
    assert f"{broken_graph}: the GPUTopology cannot be read: spec" in found["found"]
    assert f"kubectl delete gputopology {broken_graph}" in found["cure"]


def test_a_machine_that_nobody_described(installed: ClusterSession) -> None:
    installed.kubectl("label", "--overwrite", "node", "pcie-0", "kompakt.dev/machine=no-such", "kompakt.dev/racks=b")
    try:
        _, findings = doctor(installed)
        found = {one["check"]: one for one in findings if one["health"] != "ok"}
        assert "pcie-0 (no-such)" in found["machines"]["found"]
        assert "kubectl label node NODE kompakt.dev/racks-" in found["node labels"]["cure"]
    finally:
        machine = next(one.machine for one in MACHINES if one.name == "pcie-0")
        installed.kubectl("label", "--overwrite", "node", "pcie-0", f"kompakt.dev/machine={machine}", "kompakt.dev/racks-")


def test_who_may_see_little_is_told_which_right_is_missing(installed: ClusterSession) -> None:
    kubeconfig = installed.parts.account_kubeconfig("explain-reader")
    done = CliRunner().invoke(main.application(), ["doctor", "cluster", "-o", "json", f"--kubeconfig={kubeconfig}"])
    found = {one["check"]: one for one in json.loads(done.stdout)["findings"]}
    assert done.exit_code == 0
    assert found["GPU nodes"]["health"] == found["Leases"]["health"] == "not checked"
    assert "the right to list nodes" in found["GPU nodes"]["cure"]
    assert found["your rights"]["health"] == "warning"


def test_a_cluster_without_kompakt_and_one_that_is_away(installed: ClusterSession) -> None:
    done = CliRunner().invoke(main.application(), ["doctor", "cluster", f"--kubeconfig={installed.kubeconfig}", "--context=none"])
    assert isinstance(done.exception, InvalidInput)
    code, findings = doctor(installed, "--kompakt-namespace=elsewhere")
    assert code == 1
    assert "there is no Deployment of it in namespace elsewhere" in next(o["found"] for o in findings if o["check"] == "operator")
