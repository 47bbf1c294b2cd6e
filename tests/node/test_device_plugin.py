"""A hundred pods on two machines, while kubelets and plugins are killed: everybody always says the same of every GPU."""

import json
import os
import random
import re
import signal
import subprocess
import time
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import pytest

from kompakt_core.contract import RESOURCE, SCHEDULER_NAME
from kompakt_device_plugin.registration import stamp_of
from tests.support.node.scraping import figures
from tools.kube import cgroups, node, stack
from tools.kube.gpu_views import GpuViewReader, GpuViewWatcher, containers, kubelet_folder
from tools.kube.kubectl import await_state

PODS = 100
AT_ONCE = 7
SIZES = (1, 1, 2, 2, 4)
SEED = 20261121
REREGISTER_SECONDS = 5.0
LABEL = "app=churn"
OBEDIENT = "trap 'exit 0' TERM; sleep 600 & wait $!"
DEAF = "trap '' TERM; while :; do sleep 0.2; done"
DEAF_PODS = 4


def manifest(name, size, image, script=OBEDIENT):
    container = {
        "name": "main",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["sh", "-c", script],
        "resources": {"limits": {RESOURCE: str(size)}, "requests": {"cpu": "1m"}},
    }
    spec = {
        "schedulerName": SCHEDULER_NAME,
        "containers": [container],
        "terminationGracePeriodSeconds": 1,
        "restartPolicy": "Never",
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": "churn"}}, "spec": spec}


class Churn:
    """Pods that come and go in an order drawn from a seed."""

    def __init__(self, world, watcher):
        self.world, self.watcher, self.rng = world, watcher, random.Random(SEED)
        self.made = self.named = self.ran = 0  # pods there are or were to be, names given, pods that ran
        self.rejected = []
        self.down = []  # (from, to) of times in which a kubelet or plugin was down, seconds since 1970
        self.spared = ""  # a pod that is not ended

    def pods(self):
        return self.world.kubectl.items("pods", f"--selector={LABEL}")

    def step(self):
        """Some more pods, some fewer."""
        pods = self.pods()
        living = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
        running = [pod["metadata"]["name"] for pod in living if pod["status"].get("phase") == "Running"]
        running = [name for name in running if name != self.spared]
        self.note_rejected(living)
        if running:
            ended = self.rng.sample(running, self.rng.randrange(1, min(3, len(running)) + 1))
            self.ran += len(ended)
            self.world.kubectl("delete", "pods", *ended, "--wait=false")
        new = [self.new() for _ in range(min(AT_ONCE - len(living) + len(running) // 2, PODS - self.made))]
        if new:
            self.world.kubectl.apply(json.dumps({"apiVersion": "v1", "kind": "List", "items": new}))

    def new(self, script=OBEDIENT):
        self.made += 1
        self.named += 1  # one that is made anew must not get the name of a later one
        return manifest(f"churn-{self.named}", self.rng.choice(SIZES), self.world.images.names["pause"], script)

    def note_rejected(self, living):
        """kubelet admits nothing while it and the plugin do not know each other; such pods are made anew."""
        failed = [pod for pod in living if pod["status"].get("phase") == "Failed"]
        for pod in failed:
            self.rejected.append((pod["spec"]["nodeName"], pod["status"].get("reason"), pod["status"].get("message")))
            self.made -= 1
            self.world.kubectl("delete", "pod", pod["metadata"]["name"])

    def until(self, made):
        """Goes on until so many pods were made."""
        while self.made < made:
            self.step()
            time.sleep(0.2)

    def finish(self):
        """Ends what is left, each after it ran."""
        deadline = time.monotonic() + 120
        while living := [pod for pod in self.pods() if "deletionTimestamp" not in pod["metadata"]]:
            assert time.monotonic() < deadline, [pod["metadata"]["name"] for pod in living]
            self.step()
            time.sleep(0.2)
        await_state(lambda: not self.pods(), "the end of all pods", 60)


def pids_of(world, one, program):
    return [pid for pid in cgroups.processes(one.cgroup(world.cluster.name)) if program in node.command_line(pid).split(b"\0")[0]]


def plugin_pids(world, one):
    name = b"kompakt-device-plugin"
    return [pid for pid in cgroups.processes(one.cgroup(world.cluster.name)) if name in node.command_line(pid)]


def sockets(one):
    """The plugin's sockets with the times they were made."""
    folder = kubelet_folder(one) / "device-plugins"
    return {file.name: file.stat().st_ctime for file in folder.glob("kompakt-*.sock")}


def registered_anew(one, before):
    return bool(set(sockets(one)) - set(before))


@contextmanager
def down(churn, one):
    """kubelet or plugin of this node is down meanwhile: nobody can report, and nobody answers for the plugin."""
    began = time.time()
    churn.watcher.down(one.name)
    yield
    churn.watcher.up(one.name)
    churn.down.append((began, time.time()))


def restart_kubelet(world, one, churn):
    """Kills kubelet; answers how long after it listened again the plugin had registered (the node starts kubelet again)."""
    before, own = sockets(one), kubelet_folder(one) / "device-plugins" / "kubelet.sock"
    old, look = stamp_of(own), churn.watcher.eyes.look  # the inode alone may be used again
    with down(churn, one):
        for pid in pids_of(world, one, b"kubelet"):
            os.kill(pid, signal.SIGKILL)
        await_state(lambda: stamp_of(own) not in (None, old), "a new kubelet", 30)
        await_state(lambda: registered_anew(one, before), "a new registration", 30)
        await_state(lambda: all_listed(look(), one.name), "kubelet's list of the pods that it found running", 60)
    return max(sockets(one).values()) - own.stat().st_ctime


def all_listed(sight, node_name):
    """kubelet lists no pods for a while after its start."""
    listed = sight.listed[node_name]
    running = [
        (pod["metadata"]["namespace"], pod["metadata"]["name"])
        for pod in sight.pods.values()
        if pod["spec"].get("nodeName") == node_name
        and pod["status"].get("phase") == "Running"
        and "deletionTimestamp" not in pod["metadata"]
    ]
    return listed is not None and set(running) <= set(listed)


def kill_plugin(world, one, churn):
    """SIGKILL to the plugin; its pod starts it again."""
    before = sockets(one)
    with down(churn, one):
        for pid in plugin_pids(world, one):
            os.kill(pid, signal.SIGKILL)
        await_state(lambda: registered_anew(one, before), "the plugin's next registration", 60)


def replace_plugin(world, one, churn):
    """A rolling update, as far as this node goes: the pod ends by SIGTERM and takes its socket away, the next one comes."""
    before = sockets(one)
    where = ("--namespace=kompakt-system", "--selector=app.kubernetes.io/component=device-plugin")
    pods = world.kubectl.items("pods", *where, f"--field-selector=spec.nodeName={one.name}")
    with down(churn, one):
        world.kubectl("delete", "pod", *where[:1], *(pod["metadata"]["name"] for pod in pods))
        assert not set(before) & set(sockets(one)), "SIGTERM leaves no socket behind"
        await_state(lambda: registered_anew(one, before), "the next plugin's registration", 60)


def force_delete_a_deaf_pod(world, churn):
    """As soon as it has a process: kubelet gives its GPUs away while it still waits for the container's end."""
    pod = churn.new(DEAF)
    name = churn.spared = pod["metadata"]["name"]
    world.kubectl.apply(json.dumps(pod))
    uid = world.kubectl.get("pod", name)["metadata"]["uid"]
    deadline = time.monotonic() + 90
    while not any(uid in containers(one, world.cluster.name) for one in world.cluster.nodes):
        assert time.monotonic() < deadline, "the deaf pod does not run"
        churn.step()  # others make room
    churn.ran += 1
    world.kubectl("delete", "pod", name, "--force", "--grace-period=0")


def resident_megabytes(world):
    """Memory of the plugins, 10^6 bytes each."""
    pids = [pid for one in world.cluster.nodes for pid in plugin_pids(world, one)]
    lines = [line for pid in pids for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS")]
    return [int(line.split()[1]) * 1024 / 1e6 for line in lines]


def told(world):
    """Pods of which the plugin told that they hold another set than was chosen: when it did (seconds since 1970), and what."""
    events = world.kubectl.items("events", "--field-selector=involvedObject.kind=Pod")
    return {
        event["involvedObject"]["name"]: (datetime.fromisoformat(event["firstTimestamp"]).timestamp(), event["message"])
        for event in events
        if event["reason"] in ("GPUSetCorrected", "GPUSetReported") and event["involvedObject"]["name"].startswith("churn-")
    }


@pytest.fixture
def watcher(kompakt):
    eyes = GpuViewReader(kompakt.cluster)
    one = GpuViewWatcher(eyes)
    yield one
    one.close()
    eyes.close()
    print(one.summary(), *one.wrong[:9], sep="\n")


def test_a_hundred_pods_and_five_accounts_of_their_gpus(kompakt, watcher, capsys):
    first, second = kompakt.cluster.nodes
    churn = Churn(kompakt, watcher)
    began = time.monotonic()
    churn.until(20)
    registered = [restart_kubelet(kompakt, first, churn)]
    churn.until(35)
    kill_plugin(kompakt, second, churn)
    for made in range(50, 50 + 2 * DEAF_PODS, 2):
        churn.until(made)
        force_delete_a_deaf_pod(kompakt, churn)
    churn.until(65)
    registered.append(restart_kubelet(kompakt, second, churn))
    churn.until(80)
    replace_plugin(kompakt, first, churn)
    churn.until(PODS)
    churn.finish()
    await_state(lambda: free_gpus(kompakt) == 16, "all GPUs reported free", 30)
    corrected = told(kompakt)
    missed = [name for name, (at, _) in corrected.items() if not any(a - 1 <= at <= b + 1 for a, b in churn.down)]
    with capsys.disabled():
        print(f"\n{churn.ran} pods in {time.monotonic() - began:.0f} s; {watcher.summary()}")
        print(f"chosen = given for {churn.ran - len(corrected)} of {churn.ran}: {100 * (1 - len(corrected) / churn.ran):.1f} %")
        print(f"rejected while a part was down and made anew: {len(churn.rejected)}; load {os.getloadavg()[0]:.1f}")
        print(f"seconds from kubelet's new socket to the plugin's: {', '.join(f'{seconds:.2f}' for seconds in registered)}")
        print(f"resident memory of the plugins: {', '.join(f'{size:.0f}' for size in resident_megabytes(kompakt))} MB")
        print(f"of the others, while all parts were up: {len(missed)}")
        for line in [*corrected.items(), *churn.rejected, *metrics(kompakt)]:
            print(line)
    assert watcher.wrong == []
    assert churn.ran == PODS
    assert len(watcher.settled) >= 0.9 * PODS, "nearly every pod lived long enough to be looked at"
    assert max(registered) < REREGISTER_SECONDS
    assert missed == [], "while the plugin is up, what was chosen is what is given"
    assert all(size < 80 for size in resident_megabytes(kompakt))


def metrics(world):
    """What the plugins count, line by line."""
    where = ("--namespace=kompakt-system", "--selector=app.kubernetes.io/component=device-plugin")
    pods = [pod["metadata"]["name"] for pod in world.kubectl.items("pods", *where)]
    path = "/api/v1/namespaces/kompakt-system/pods/{}:8903/proxy/metrics"
    texts = [figures(world, path.format(pod))[1] for pod in pods]
    return [line for text in texts for line in text.splitlines() if re.match("[a-z_]+(_total|gpus)[ {]", line)]


def free_gpus(world):
    return sum(world.kubectl.get("gputopology", name)["status"]["free"] for name in stack.REAL_NODES)


def test_the_plugin_is_root_without_any_of_roots_power(kompakt):
    """As the kernel sees the process on a real node."""
    for one in kompakt.cluster.nodes:
        for pid in plugin_pids(kompakt, one):
            status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
            assert status["Uid"].split() == ["0"] * 4
            assert int(status["CapEff"], 16) == int(status["CapBnd"], 16) == 0
            assert status["NoNewPrivs"].strip() == "1"
            root = next(line for line in Path(f"/proc/{pid}/mounts").read_text().splitlines() if line.split()[1] == "/")
            assert "ro" in root.split()[3].split(",")


def test_a_deleted_topology_comes_back_on_a_real_node(kompakt):
    name = stack.REAL_NODES[0]
    uid = kompakt.kubectl.get("gputopology", name)["metadata"]["uid"]
    kompakt.kubectl("delete", "gputopology", name)
    await_state(lambda: kompakt.kubectl.get("gputopology", name)["metadata"]["uid"] != uid, "the topology restored", 10)
    await_state(lambda: kompakt.kubectl.get("gputopology", name)["status"]["free"] == 8, "its status", 10)
    columns = subprocess.run(
        [kompakt.kubectl.program, f"--kubeconfig={kompakt.kubectl.kubeconfig}", "get", "gputopology", name],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split("\n")[0]
    assert columns.split() == ["NAME", "GPUS", "FREE", "FABRIC", "HEALTH", "AGE"]


def test_a_second_plugin_on_a_node_waits_un_ready(kompakt):
    """A second DaemonSet on the same nodes: its pods run, serve nothing and are not Ready."""
    daemon = kompakt.kubectl.get("daemonset", "kompakt-device-plugin", "--namespace=kompakt-system")
    selector = {"app": "second-plugin"}
    template = daemon["spec"]["template"]
    template["metadata"] = {"labels": selector}
    meta = {"name": "second-plugin", "namespace": "kompakt-system"}
    second = {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": meta}
    second["spec"] = {"selector": {"matchLabels": selector}, "template": template}
    before = {one.name: sockets(one) for one in kompakt.cluster.nodes}
    kompakt.kubectl.apply(json.dumps(second))
    try:
        where = ("--namespace=kompakt-system", "--selector=app=second-plugin")
        log = "another process serves node"
        await_state(lambda: log in kompakt.kubectl("logs", *where), "a second plugin that waits", 60)
        pods = kompakt.kubectl.items("pods", *where)
        assert len(pods) == 2
        assert not any(status["ready"] for pod in pods for status in pod["status"].get("containerStatuses", []))
        assert {one.name: sockets(one) for one in kompakt.cluster.nodes} == before
    finally:
        kompakt.kubectl("delete", "daemonset", "second-plugin", "--namespace=kompakt-system", "--cascade=foreground")
