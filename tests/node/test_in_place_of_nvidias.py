"""kompakt in place of NVIDIA's device plugin, as nvidia.com/gpu: a node moves over and back while pods keep their GPUs, users'
manifests stay as they are, and where both run nothing is offered.
"""

import json
import os
import signal

import pytest

from kompakt_core.contract import ANN_GPUS, SCHEDULER_NAME
from tests.support.node.commands import kompakt_command
from tests.support.node.dra_driver import CLASS, DRIVER, claim, claiming_pod, dra_driver
from tests.support.node.jobs import Jobs, await_phase, pods_of, sleeping
from tests.support.node.nvidias_plugin import RESOURCE, SOCKET, NvidiasPlugin
from tests.support.turns import in_turn
from tools.kube import cgroups, install, node, scatter, stack
from tools.kube.gpu_views import kubelet_folder
from tools.kube.kubectl import await_state
from tools.kube.parts import NAMESPACE

THEIRS = "theirs"  # a namespace whose pods keep the default scheduler
NAMED = {
    "devicePlugin.resourceName": RESOURCE,
    "admission.exemptNamespaces": f"{{{THEIRS}}}",
}
SECONDS = 5  # within which another plugin shows


class Moving:
    """The node that moves."""

    def __init__(self, world):
        self.world, self.node, self.plugins = world, world.cluster.nodes[0], []
        self.gpus = [gpu["uuid"] for gpu in self.topology()["spec"]["gpus"]]

    def topology(self):
        return self.world.kubectl.get("gputopology", self.node.name)

    def conflict(self):
        """The sentence of the condition Conflict; empty where there is none."""
        found = next(one for one in self.topology()["status"]["conditions"] if one["type"] == "Conflict")
        return found["message"] if found["status"] == "True" else ""

    def offered(self):
        return int(self.world.kubectl.get("node", self.node.name)["status"]["allocatable"].get(RESOURCE, "0"))

    def sockets(self):
        """Of kompakt's plugin: each registration is a new one."""
        return {file.name for file in (kubelet_folder(self.node) / "device-plugins").glob("kompakt-*.sock")}

    def await_ours(self, before=frozenset(), seconds=60):
        """Until kubelet listens to kompakt's plugin, by another socket than these."""
        try:
            await_state(
                lambda: not self.conflict() and self.sockets() - before and self.offered() == scatter.GPUS,
                f"kompakt offers all GPUs as {RESOURCE}",
                seconds,
            )
        except TimeoutError as error:
            error.add_note(
                f"Conflict: {self.conflict()!r}, sockets {sorted(before)} -> {sorted(self.sockets())}, {self.offered()}"
            )
            raise

    def held(self):
        """GPUs by the name of their pod, as reported."""
        found = {}
        for one in self.topology()["status"].get("held") or ():
            found.setdefault(one["pod"], set()).add(one["uuid"])
        return found

    def theirs(self, socket=SOCKET):
        """The other plugin, once more."""
        self.plugins.append(NvidiasPlugin(kubelet_folder(self.node) / "device-plugins", self.gpus, socket))
        self.plugins[-1].start()
        return self.plugins[-1]

    def pod(self, name, gpus=2, **where):
        """As users of NVIDIA's plugin write it."""
        container = {
            "name": "main",
            "image": self.world.images.names["pause"],
            "imagePullPolicy": "IfNotPresent",
            "command": ["sh", "-c", "env; " + sleeping(600)],
            "resources": {"limits": {RESOURCE: str(gpus)}},
        }
        spec = {
            "nodeSelector": {"kubernetes.io/hostname": self.node.name},
            "containers": [container],
            "terminationGracePeriodSeconds": 1,
        }
        self.world.kubectl.apply(
            json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **where}, "spec": spec})
        )
        flags = [f"--namespace={namespace}" for namespace in where.values()]
        await_state(lambda: self.world.kubectl.get("pod", name, *flags)["status"].get("phase") == "Running", f"{name} runs", 60)
        return self.world.kubectl.get("pod", name, *flags)


def restart_kubelet(world, one):
    """It counts GPUs of a plugin that has gone for five minutes more, unless it starts anew; its node does that by itself."""

    def counted():
        return world.kubectl.get("node", one.name)["status"]["capacity"].get(RESOURCE, "0")

    for pid in cgroups.processes(one.cgroup(world.cluster.name)):
        if node.command_line(pid).split(b"\0")[0].rpartition(b"/")[2] == b"kubelet":
            os.kill(pid, signal.SIGKILL)
    await_state(lambda: counted() == "0", f"no {RESOURCE} at {one.name}", 60)


@pytest.fixture
def moving(kompakt, jobs):
    world = kompakt
    world.kubectl("create", "namespace", THEIRS)
    moving = Moving(world)
    yield moving
    for plugin in moving.plugins:
        plugin.stop()
    world.kubectl("delete", "namespace", THEIRS, "--timeout=60s")
    world.kubectl("delete", "pods", "asks-ours", "--ignore-not-found", "--timeout=60s")
    install.helm_install(world.cluster, world.images)
    for one in world.cluster.nodes:
        restart_kubelet(world, one)
    install.await_gpus(world.kubectl, dict.fromkeys(stack.REAL_NODES, scatter.GPUS))


def environment(world, name):
    lines = world.kubectl("logs", name).splitlines()
    return dict(line.partition("=")[::2] for line in lines if "=" in line)


def free_of(world, one):
    """The node's free GPUs, as explained."""
    done = kompakt_command(world, "explain", "nodes", "-o", "json")
    assert done.returncode == 0, done.stderr
    (found,) = [node["free"] for node in json.loads(done.stdout)["items"] if node["name"] == one.name]
    return found


@in_turn(0)
def test_a_node_moves_over_and_back_with_pods_running(moving: Moving, jobs: Jobs) -> None:
    world, theirs = moving.world, moving.theirs()
    await_state(lambda: moving.conflict().endswith(RESOURCE), "kompakt leaves the node to the other plugin", 30)
    before = moving.pod("asks-theirs", namespace=THEIRS)
    assert before["spec"]["schedulerName"] == "default-scheduler"

    # Over: first ours beside theirs, which must not be; then theirs goes.
    install.helm_install(world.cluster, world.images, NAMED)
    await_state(lambda: SOCKET in moving.conflict(), "the other plugin shows by its socket", 60)
    theirs.stop()
    moving.await_ours()
    held = moving.held()
    assert len(held["asks-theirs"]) == 2, "a pod keeps what the other plugin gave it"

    ours = moving.pod("asks-ours")
    assert ours["spec"]["schedulerName"] == SCHEDULER_NAME, "users' manifests name no scheduler"
    chosen = ours["metadata"]["annotations"][ANN_GPUS]
    assert environment(world, "asks-ours")["CUDA_VISIBLE_DEVICES"] == chosen
    assert not held["asks-theirs"] & set(chosen.split(","))
    jobs.apply("named", sleeping(600), replicas=1, gpus=4, pod={"nodeSelector": {"kubernetes.io/hostname": moving.node.name}})
    await_phase(world, "named", "Running")
    (worker,) = pods_of(world, "named")
    assert worker["spec"]["containers"][0]["resources"]["limits"][RESOURCE] == "4"
    assert {name: len(gpus) for name, gpus in moving.held().items()} == {
        "asks-theirs": 2,
        "asks-ours": 2,
        worker["metadata"]["name"]: 4,
    }

    # Theirs comes back while ours runs: nothing is offered until one of both is gone.
    before = moving.sockets()
    again = moving.theirs()
    await_state(lambda: SOCKET in moving.conflict(), "the other plugin shows again", SECONDS)
    again.stop()
    moving.await_ours(before)

    # By another socket's name it shows by what it gives.
    world.kubectl("delete", "trainingjob", "named", "--timeout=60s")
    before = moving.sockets()
    last = moving.theirs("other.sock")
    moving.pod("given", 1, namespace=THEIRS)
    await_state(lambda: f"pod {THEIRS}/given has GPUs" in moving.conflict(), "the other plugin shows by what a pod has", SECONDS)
    world.kubectl("delete", "pod", "given", f"--namespace={THEIRS}", "--timeout=60s")
    last.stop()
    moving.await_ours(before)

    # Back: ours goes, theirs comes, pods keep what they have.
    install.helm_install(world.cluster, world.images)
    await_state(lambda: moving.offered() == 0, f"nobody offers {RESOURCE}", 60)
    moving.theirs()
    await_state(lambda: moving.offered() == scatter.GPUS, "theirs offers all GPUs", 30)
    assert world.kubectl.get("pod", "asks-ours")["status"]["phase"] == "Running"
    moving.pod("last", 4, namespace=THEIRS)


def test_beside_the_other_plugin_kompakt_reports_and_explains_and_nothing_else(moving: Moving) -> None:
    world = moving.world
    moving.theirs()
    install.helm_install(world.cluster, world.images, {"allocation": "Report", "devicePlugin.resourceName": RESOURCE})
    made = moving.pod("asks-theirs", namespace=THEIRS)
    await_state(lambda: len(moving.held().get("asks-theirs", ())) == 2, "the pod's GPUs are reported", 60)
    assert (moving.conflict(), moving.topology()["status"]["free"]) == ("", scatter.GPUS - 2)
    assert ANN_GPUS not in (world.kubectl.get("pod", "asks-theirs", f"--namespace={THEIRS}")["metadata"].get("annotations") or {})
    assert made["spec"]["schedulerName"] == "default-scheduler"

    where = f"--namespace={NAMESPACE}"
    (deployment,) = world.kubectl.items("deployments", where)
    assert [one["name"] for one in deployment["spec"]["template"]["spec"]["containers"]] == ["extender"]

    await_state(lambda: len(free_of(world, moving.node)) == scatter.GPUS - 2, "explain knows who has what", 30)
    done = kompakt_command(world, "what-if", "--gpus", "4", "--pattern", "ring", "-o", "json")
    assert done.returncode == 0, done.stderr
    offers = {one["node"]: one for one in json.loads(done.stdout)["offers"]}
    assert not set(offers[moving.node.name]["gpus"]) & {moving.gpus.index(gpu) for gpu in moving.held()["asks-theirs"]}
    done = kompakt_command(world, "explain", "pod", "asks-theirs", "-n", THEIRS, "-o", "json")
    told = json.loads(done.stdout)
    assert set(told["gpus"]) == moving.held()["asks-theirs"]
    assert 0 < told["value"] <= told["ideal"]
    checked = kompakt_command(world, "doctor", "cluster")
    assert checked.returncode == 0, checked.stdout


def test_gpus_that_a_driver_hands_out_by_claims_are_reported_and_explained(moving: Moving) -> None:
    """The node has no device plugin: it offers no GPU by number, and its GPUs are seen all the same."""
    world, given = moving.world, {moving.gpus[2], moving.gpus[5]}
    install.helm_install(world.cluster, world.images, {"allocation": "Report", "devicePlugin.resourceName": RESOURCE})
    pod = claiming_pod("claims", world.images.names["pause"], sleeping(600))
    with dra_driver(world, moving.node, {"gpu-2": moving.gpus[2], "gpu-5": moving.gpus[5]}):
        world.kubectl.apply(json.dumps({"apiVersion": "v1", "kind": "List", "items": [CLASS, claim("claims", 2), pod]}))
        await_state(lambda: moving.held().get("claims") == given, "the claim's GPUs are reported", 60)
        assert (moving.conflict(), moving.topology()["status"]["free"]) == ("", scatter.GPUS - 2)
        await_state(lambda: len(free_of(world, moving.node)) == scatter.GPUS - 2, "explain knows who has what", 30)
        done = kompakt_command(world, "what-if", "--gpus", "4", "--pattern", "ring", "-o", "json")
        assert done.returncode == 0, done.stderr
        (offer,) = [one for one in json.loads(done.stdout)["offers"] if one["node"] == moving.node.name]
        assert not {2, 5} & set(offer["gpus"])
        world.kubectl("delete", "pod", "claims", "--timeout=60s")
        await_state(lambda: not moving.held(), "they are free again", 30)
        world.kubectl("delete", "resourceclaim/claims", f"deviceclass/{DRIVER}", "--timeout=60s")


def test_a_driver_hands_out_what_kompakt_chooses(moving: Moving, jobs: Jobs) -> None:
    """kompakt writes claims for exact GPUs, the cluster's own scheduler allocates them, kubelet has the driver prepare them."""
    world, name = moving.world, "by-claims"
    install.helm_install(world.cluster, world.images, {"allocation": "ResourceClaims"})
    world.kubectl.apply(json.dumps(CLASS))
    here = {"nodeSelector": {"kubernetes.io/hostname": moving.node.name}}  # the driver runs on this node alone
    with dra_driver(world, moving.node, {f"gpu-{index}": uuid for index, uuid in enumerate(moving.gpus)}):
        jobs.apply(name, sleeping(600), replicas=2, gpus=3, pod=here)
        await_phase(world, name, "Running")
        await_state(lambda: all(gpus_of(pod) for pod in pods_of(world, name)), "their GPUs are written on both", 30)
        given = {pod["metadata"]["name"]: gpus_of(pod) for pod in pods_of(world, name)}
        await_state(lambda: moving.held() == given, "kubelet says the same of them", 30)
        assert [len(gpus) for gpus in given.values()] == [3, 3]
        assert {pod["spec"]["schedulerName"] for pod in pods_of(world, name)} == {"default-scheduler"}
        world.kubectl("delete", "trainingjob", name, "--timeout=60s")
        await_state(lambda: not moving.held(), "they are free again", 30)
        assert world.kubectl.items("resourceclaims") == []
    world.kubectl("delete", f"deviceclass/{DRIVER}")


def gpus_of(pod):
    """The GPUs that are written on a pod."""
    return set(filter(None, (pod["metadata"].get("annotations") or {}).get(ANN_GPUS, "").split(",")))
