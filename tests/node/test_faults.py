"""Parts killed in the middle: the operator, the scheduler pod that decides, a whole node. Jobs end well, GPUs come back."""

import json
import os
import signal
from contextlib import contextmanager

import pytest

from kompakt_core.contract import LABEL_JOB_NAME
from tools.kube import cgroups, namespaces, node, stack
from tools.kube.kubectl import await_state, condition

OPERATOR = b"/opt/kompakt/bin/kompakt-operator"


def job(name, image, *, replicas=2, gpus=2, seconds=5):
    container = {
        "name": "main",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["sh", "-c", f"trap 'exit 0' TERM; sleep {seconds} & wait $!"],
        "resources": {"requests": {"cpu": "10m", "memory": "8Mi"}},
    }
    template = {"spec": {"containers": [container], "terminationGracePeriodSeconds": 1}}
    role = {"name": "worker", "replicas": replicas, "gpusPerReplica": gpus, "template": template}
    spec = {"roles": [role], "communication": {"pattern": "Ring"}, "injection": "Never"}
    return {"apiVersion": "kompakt.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": name}, "spec": spec}


def kill_program(world, program):
    """SIGKILL to all processes of a program in the cluster's pods; answers how many there were."""
    found = [pid for pid in cgroups.processes(namespaces.cgroup_of(world.cluster.name)) if program in node.command_line(pid)]
    for pid in found:
        os.kill(pid, signal.SIGKILL)
    return len(found)


def phase(world, name):
    return world.kubectl.get("trainingjob", name).get("status", {}).get("phase", "")


def await_phase(world, name, *phases, seconds=90):
    await_state(lambda: phase(world, name) in phases, f"phase {' or '.join(phases)} of {name}", seconds)


def pods_of(world, name):
    return world.kubectl.items("pods", f"--selector={LABEL_JOB_NAME}={name}")


@contextmanager
def lost_node(world):
    """The second machine is gone at once; it comes back, with its disk, when the block ends."""
    lost = world.cluster.nodes[1]
    node.kill(lost, world.cluster.spaces)
    try:
        await_state(lambda: not condition(world.kubectl.get("node", lost.name), "Ready"), "NotReady", 30)
        yield
    finally:
        node.start(lost, world.cluster.spaces)
    await_state(lambda: condition(world.kubectl.get("node", lost.name), "Ready"), "Ready again", 60)


@pytest.fixture
def run(kompakt):
    """Applies a job, and deletes it afterwards; all its GPUs must come back."""
    names = []

    def start(name, **wishes):
        names.append(name)
        kompakt.kubectl.apply(json.dumps(job(name, kompakt.images.names["pause"], **wishes)))

    yield start
    for name in names:
        kompakt.kubectl("delete", "trainingjob", name, "--timeout=60s")
    await_state(lambda: all_free(kompakt), "all GPUs free again", 60)


def all_free(world):
    return all(world.kubectl.get("gputopology", name)["status"]["free"] == 8 for name in stack.REAL_NODES)


def test_a_job_runs_to_its_end_although_the_operator_is_killed(kompakt, run):
    run("operator-killed", seconds=8)
    await_phase(kompakt, "operator-killed", "Running")
    before = {pod["metadata"]["uid"] for pod in pods_of(kompakt, "operator-killed")}
    assert kill_program(kompakt, OPERATOR) > 0
    await_phase(kompakt, "operator-killed", "Succeeded")
    assert {pod["metadata"]["uid"] for pod in pods_of(kompakt, "operator-killed")} == before, "nothing was started anew"
    assert kompakt.kubectl.get("trainingjob", "operator-killed")["status"]["restarts"] == 0


def test_a_job_made_while_both_scheduler_pods_are_dead_is_placed_by_the_next(kompakt, run):
    where = ("--namespace=kompakt-system", "--selector=app.kubernetes.io/component=scheduler")
    assert len(kompakt.kubectl.items("pods", *where)) == 2
    kompakt.kubectl("delete", "pod", *where, "--force", "--grace-period=0")
    run("scheduler-killed")
    await_phase(kompakt, "scheduler-killed", "Succeeded", seconds=120)
    assert kompakt.kubectl.get("trainingjob", "scheduler-killed")["status"]["attempt"] == 1


def test_a_gang_half_of_which_was_on_a_lost_node_runs_again(kompakt, run):
    """Both machines are needed; one goes down in the middle. The gang restarts as a whole when it is back."""
    run("node-lost", gpus=6, seconds=15)
    await_phase(kompakt, "node-lost", "Running")
    assert {pod["spec"]["nodeName"] for pod in pods_of(kompakt, "node-lost")} == set(stack.REAL_NODES)
    with lost_node(kompakt):
        # Workers stay for a minute on a node that is not Ready, in case it comes back; then the whole gang is given up.
        await_phase(kompakt, "node-lost", "Restarting", "Pending", seconds=120)
    await_phase(kompakt, "node-lost", "Succeeded", seconds=180)
    status = kompakt.kubectl.get("trainingjob", "node-lost")["status"]
    assert status["attempt"] >= 2
