"""Real nodes: pods on both, names and Services between them, and simulated nodes that take no ordinary pod."""

import json

import pytest

from tools.kube import cgroups, namespaces
from tools.kube.kubectl import await_state, condition
from tools.kube.node import command_line

FETCH = "import urllib.request; print(urllib.request.urlopen('http://{host}:8000/etc/hostname', timeout=5).read().decode())"


def pod(name, node, image, *command):
    container = {"name": "main", "image": image, "command": list(command), "imagePullPolicy": "IfNotPresent"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {"containers": [container], "nodeSelector": {"kubernetes.io/hostname": node}, "terminationGracePeriodSeconds": 1},
    }


def test_the_control_plane_shares_the_processors_with_the_nodes_inside_one_group(world):
    """Beside that group it would be one process against all pods together."""
    lines = [command_line(pid) for pid in cgroups.processes(namespaces.cgroup_of(world.cluster.name))]
    for program in (b"/etcd", b"/kube-apiserver", b"/kube-controller-manager", b"/kube-scheduler", b"/kwok"):
        assert any(line.split(b"\0")[0].endswith(program) for line in lines), program


@pytest.fixture(scope="module")
def server(world):
    """A pod on node-1 that serves its files, with a Service before it."""
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "server"},
        "spec": {"selector": {"app": "server"}, "ports": [{"port": 8000}]},
    }
    image = world.images.names["pause"]
    world.kubectl.apply(json.dumps(service))
    world.kubectl.apply(json.dumps(pod("server", "node-1", image, "python3", "-m", "http.server", "--directory", "/")))
    world.kubectl.apply(json.dumps(pod("client", "node-2", image, "sleep", "infinity")))
    world.kubectl("wait", "--for=condition=Ready", "pod/server", "pod/client", "--timeout=30s")
    address = world.kubectl.get("pod", "server")["status"]["podIP"]
    # A pod without a probe is Ready before its program listens.
    await_state(lambda: fetch(world, "127.0.0.1", "server") == "server", "the server's program", 20)
    yield address
    world.kubectl("delete", "pod/server", "pod/client", "service/server", "--now")


def fetch(world, host, where="client"):
    return world.kubectl("exec", where, "--", "python3", "-c", FETCH.format(host=host)).strip()


def test_both_nodes_are_ready_and_say_which_machine_they_play(world):
    nodes = {node["metadata"]["name"]: node for node in world.kubectl.items("nodes") if "kwok" not in json.dumps(node)}
    assert sorted(nodes) == ["node-1", "node-2"]
    assert all(condition(node, "Ready") for node in nodes.values())
    labels = [nodes[name]["metadata"]["labels"]["kompakt.dev/machine"] for name in sorted(nodes)]
    assert labels == ["dgx1-v100", "a100-pcie-8-bridge-pairs"]


def test_a_pod_reaches_a_pod_of_the_other_node_by_its_address(world, server):
    assert fetch(world, server) == "server"


def test_a_pod_reaches_a_service_by_its_name(world, server):
    # kube-proxy hears of an endpoint a moment after its pod is Ready; until then it refuses connections to the Service.
    await_state(lambda: fetch(world, "server.default.svc.cluster.local") == "server", "the Service on the client's node", 20)
    assert fetch(world, "server") == "server"


def test_ordinary_pods_stay_off_simulated_nodes(world):
    """Five pods without annotations: with two real and three simulated nodes some would land there without the taint."""
    image = world.images.names["pause"]
    names = [f"wanderer-{number}" for number in range(5)]
    for name in names:
        wanderer = pod(name, "", image, "sleep", "infinity")
        del wanderer["spec"]["nodeSelector"]
        world.kubectl.apply(json.dumps(wanderer))
    pods = [f"pod/{name}" for name in names]
    world.kubectl("wait", "--for=condition=Ready", *pods, "--timeout=30s")
    places = {world.kubectl.get(pod)["spec"]["nodeName"] for pod in pods}
    world.kubectl("delete", *pods, "--now", "--wait=false")
    assert places <= {"node-1", "node-2"}
