"""Parts killed in the middle: the operator, the scheduler pods. Jobs end well, GPUs come back (for machines: test_storm.py)."""

import json
import os
import signal

from tests.support.node.jobs import await_phase, pods_of, sleeping, status
from tools.kube import cgroups, namespaces, node
from tools.kube.kubectl import await_state

OPERATOR = b"/opt/kompakt/bin/kompakt-operator"


def kill_program(world, program):
    """SIGKILL to all processes of a program in the cluster's pods; answers how many there were."""
    found = [pid for pid in cgroups.processes(namespaces.cgroup_of(world.cluster.name)) if program in node.command_line(pid)]
    for pid in found:
        os.kill(pid, signal.SIGKILL)
    return len(found)


def test_a_job_runs_to_its_end_although_the_operator_is_killed(kompakt, jobs):
    jobs.apply("operator-killed", sleeping(8))
    await_phase(kompakt, "operator-killed", "Running")
    before = {pod["metadata"]["uid"] for pod in pods_of(kompakt, "operator-killed")}
    assert kill_program(kompakt, OPERATOR) > 0
    await_phase(kompakt, "operator-killed", "Succeeded")
    assert {pod["metadata"]["uid"] for pod in pods_of(kompakt, "operator-killed")} == before, "nothing was started anew"
    assert status(kompakt, "operator-killed")["restarts"] == 0


def test_a_job_made_while_both_scheduler_pods_are_dead_is_placed_by_the_next(kompakt, jobs):
    where = ("--namespace=kompakt-system", "--selector=app.kubernetes.io/component=scheduler")
    assert len(kompakt.kubectl.items("pods", *where)) == 2
    kompakt.kubectl("delete", "pod", *where, "--force", "--grace-period=0")
    jobs.apply("scheduler-killed", sleeping(2))
    await_phase(kompakt, "scheduler-killed", "Succeeded", seconds=120)
    assert status(kompakt, "scheduler-killed")["attempt"] == 1


def test_a_container_that_its_own_rules_restart_in_place_costs_the_gang_nothing(kompakt, jobs):
    """The template's restartPolicyRules are kubelet's business; the gang never hears of it."""
    rules = [{"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}]
    own = {"restartPolicy": "Never", "restartPolicyRules": rules, "volumeMounts": [{"name": "state", "mountPath": "/state"}]}
    script = "[ -f /state/again ] && exit 0; touch /state/again; exit 42"
    jobs.apply("in-place", script, container=own, pod={"volumes": [{"name": "state", "emptyDir": {}}]})
    await_phase(kompakt, "in-place", "Succeeded", "Failed", seconds=120)
    found = status(kompakt, "in-place")
    assert (found["phase"], found["attempt"], found["restarts"]) == ("Succeeded", 1, 0)
    pods = pods_of(kompakt, "in-place")
    assert [pod["status"]["containerStatuses"][0]["restartCount"] for pod in pods] == [1, 1]


def test_an_image_that_cannot_be_pulled_is_told_and_mended_while_suspended(kompakt, jobs):
    """Pods keep their GPUs meanwhile; nobody else is held up."""
    jobs.apply("no-image", sleeping(0), container={"image": "localhost/nowhere:1"})
    say = "container main cannot pull localhost/nowhere:1"
    await_state(lambda: say in told(kompakt, "no-image", "Reconciling"), "its status says so", 60)
    assert status(kompakt, "no-image")["phase"] == "Starting"
    jobs.apply("another", sleeping(0), gpus=1)
    await_phase(kompakt, "another", "Succeeded")
    change(kompakt, "no-image", {"op": "add", "path": "/spec/suspend", "value": True})
    await_phase(kompakt, "no-image", "Suspended")
    image = {"path": "/spec/roles/0/template/spec/containers/0/image", "value": kompakt.images.names["pause"]}
    change(kompakt, "no-image", {"op": "replace", **image}, {"op": "replace", "path": "/spec/suspend", "value": False})
    await_phase(kompakt, "no-image", "Succeeded")
    assert status(kompakt, "no-image")["restarts"] == 0


def told(world, name, type_):
    """The message of a condition."""
    return next((found["message"] for found in status(world, name).get("conditions", []) if found["type"] == type_), "")


def change(world, name, *patch):
    world.kubectl("patch", "trainingjob", name, "--type=json", f"--patch={json.dumps(patch)}")
