"""GPUs by ResourceClaims and CDI under containerd 2 on a real node: containers see exactly what their claims were given, whatever
starts anew meanwhile, and a gang leaves a device that an administrator taints.
"""

import json
import os
import re
import shutil
import signal

import pytest

from kompakt_core.contract import ANN_GPU_INDICES
from tests.support.node.dra_driver import API, CLASS, DRIVER, dra_driver
from tests.support.node.gpu_machine import gpu_machine
from tests.support.node.jobs import await_phase, pods_of, sleeping
from tests.support.turns import in_turn
from tools.kube import cgroups, install, node, scatter, stack
from tools.kube.kubectl import await_state, condition

KIND = "nvidia.com/gpu"
LIST = "ls /dev; " + sleeping(600)
PLANNERS = ("--namespace=kompakt-system", "--selector=app.kubernetes.io/component=scheduler")


@pytest.fixture
def machine(kompakt, jobs):
    """Its GPUs are handed out by a DRA driver, by kompakt's claims."""
    if shutil.which("gcc") is None:
        pytest.skip("no C compiler (gcc) to build the stand-in for the driver's library")
    install.helm_install(kompakt.cluster, kompakt.images, {"allocation": "ResourceClaims"})
    kompakt.kubectl.apply(json.dumps(CLASS))
    with gpu_machine(kompakt, 'allocation="ResourceClaims"') as one:
        yield one
        jobs.delete()
    kompakt.kubectl("delete", "deviceclasses,devicetaintrules", "--all")
    install.helm_install(kompakt.cluster, kompakt.images)
    install.await_gpus(kompakt.kubectl, dict.fromkeys(stack.REAL_NODES, scatter.GPUS))


def driver(machine):
    devices = {f"gpu-{index}": uuid for index, uuid in enumerate(machine.gpus)}
    return dra_driver(machine.world, machine.node, devices, cdi=KIND)


def seen(world, name):
    """Device files of GPUs in each worker's container, by pod."""
    pods = [pod["metadata"]["name"] for pod in pods_of(world, name)]
    return {pod: {int(number) for number in re.findall(r"^nvidia(\d+)$", world.kubectl("logs", pod), re.M)} for pod in pods}


def written(world, name):
    """GPUs that stand on each worker, by pod: indices."""
    notes = {pod["metadata"]["name"]: pod["metadata"].get("annotations") or {} for pod in pods_of(world, name)}
    return {pod: set(map(int, filter(None, found.get(ANN_GPU_INDICES, "").split(",")))) for pod, found in notes.items()}


def held(machine):
    """The same as kubelet's PodResources tell it, of all pods of the node."""
    found = {}
    for one in machine.world.kubectl.get("gputopology", machine.node.name)["status"].get("held") or ():
        found.setdefault(one["pod"], set()).add(machine.gpus.index(one["uuid"]))
    return found


def await_exact(machine, *names):
    """All say the same: the plan as written, kubelet, and the containers."""
    world = machine.world
    for name in names:
        await_phase(world, name, "Running")
    await_state(lambda: all(all(written(world, name).values()) for name in names), f"GPUs are written on {names}", 30)
    await_state(lambda: all(seen(world, name) == written(world, name) for name in names), f"containers of {names} see these", 30)
    all_of = {pod: gpus for name in names for pod, gpus in written(world, name).items()}
    assert sum(map(len, all_of.values())) == len(set().union(*all_of.values())), "no GPU has two users"
    await_state(lambda: held(machine) == all_of, "kubelet says the same", 30)
    return all_of


def kubelets(machine):
    pids = cgroups.processes(machine.node.cgroup(machine.world.cluster.name))
    return {pid for pid in pids if node.command_line(pid).split(b"\0")[0].rpartition(b"/")[2] == b"kubelet"}


@in_turn(1)
def test_containers_see_what_their_claims_were_given_whatever_starts_anew(machine, jobs):
    world, here = machine.world, {"nodeSelector": {"kubernetes.io/hostname": machine.node.name}}
    with driver(machine):
        jobs.apply("exact", LIST, replicas=2, gpus=3, pod=here)
        before = await_exact(machine, "exact")
        assert [len(gpus) for gpus in before.values()] == [3, 3]
        (old,) = kubelets(machine)
        os.kill(old, signal.SIGKILL)
        await_state(lambda: kubelets(machine) - {old}, "another kubelet runs", 60)
        world.kubectl("delete", "pod", *PLANNERS, "--force", "--grace-period=0")
    with driver(machine):
        jobs.apply("later", LIST, replicas=1, gpus=2, pod=here)
        after = await_exact(machine, "exact", "later")
        assert {pod: after[pod] for pod in before} == before
        assert condition(world.kubectl.get("node", machine.node.name), "Ready")

        world.kubectl("delete", "trainingjob", "later", "--timeout=60s")
        lost = min(min(before.values(), key=min))
        selector = {"driver": DRIVER, "pool": machine.node.name, "device": f"gpu-{lost}"}
        rule = {"deviceSelector": selector, "taint": {"key": "example.com/service", "effect": "NoExecute"}}
        world.kubectl.apply(
            json.dumps({"apiVersion": API, "kind": "DeviceTaintRule", "metadata": {"name": "in-service"}, "spec": rule})
        )
        await_state(lambda: moved(world, "exact", lost), "the gang runs again without that GPU", 120)
        assert lost not in set().union(*await_exact(machine, "exact").values())


def moved(world, name, lost):
    """Whether all workers have GPUs, and none has this one."""
    pods = written(world, name)
    return len(pods) == 2 and all(pods.values()) and lost not in set().union(*pods.values())
