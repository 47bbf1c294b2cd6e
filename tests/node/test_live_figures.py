"""A machine is torn away: a gang of which it had a half runs again, and what compression saved on it stays in the status."""

import json
from pathlib import Path

import yaml

from tests.support.node.faults import SOON, lost_node
from tests.support.node.jobs import await_phase, pods_of, sleeping, status
from tests.support.turns import in_turn
from tools.kube import stack
from tools.kube.kubectl import await_state

ROOT = Path(__file__).parents[2]
NAME = "endless"


def endless(image, node):
    """The example's training with one worker of two processes on that node, longer than anybody waits."""
    made = yaml.safe_load((ROOT / "examples" / "digits" / "job.yaml").read_text())
    made["metadata"]["name"] = NAME
    role = made["spec"]["roles"][0] | {"replicas": 1}
    pod = role["template"]["spec"]
    pod |= {"nodeSelector": {"kubernetes.io/hostname": node}, "tolerations": SOON}
    pod["containers"][0]["image"] = image
    pod["containers"][0]["command"].append("--epochs=100000")
    made["spec"]["roles"] = [role]
    return made


def compression(world):
    return status(world, NAME).get("compression", {})


@in_turn(0)
def test_figures_and_gangs_outlive_a_machine(kompakt, jobs):
    kubectl, lost = kompakt.kubectl, kompakt.cluster.nodes[1].name
    jobs.apply("halved", sleeping(10_000), gpus=6, pod={"tolerations": SOON})
    await_phase(kompakt, "halved", "Running")
    assert {pod["spec"]["nodeName"] for pod in pods_of(kompakt, "halved")} == set(stack.REAL_NODES)
    kubectl.apply(json.dumps(endless(kompakt.images.names["kompakt-digits"], lost)))
    jobs.names.append(NAME)
    await_phase(kompakt, NAME, "Running")
    await_state(lambda: float(compression(kompakt).get("ratio", 0)) > 2, "figures of the running job", 240)
    shown = compression(kompakt)
    assert status(kompakt, NAME)["phase"] == "Running"
    assert (shown["active"], shown["complete"], shown["ranks"], shown["attempt"]) == (True, False, 2, 1)
    assert shown["savedBytes"] < shown["plainBytes"]
    assert shown["ratio"] in kubectl("get", "trainingjob", NAME, "--no-headers").split()
    with lost_node(kompakt):
        await_state(lambda: status(kompakt, NAME)["attempt"] == 2, "the next attempt", 180)
        left = compression(kompakt)
        await_state(lambda: status(kompakt, "halved")["attempt"] == 2, "the whole gang given up", 120)
    assert (left["active"], left["complete"], left["ranks"], left["attempt"]) == (True, False, 2, 1)
    assert left["plainBytes"] >= shown["plainBytes"]
    await_phase(kompakt, "halved", "Running", seconds=180)
