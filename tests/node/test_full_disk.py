"""A node whose disk is full: a gang there is evicted and starts anew elsewhere; the node serves again once there is room."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.support.node.jobs import Jobs, await_phase, pods_of, sleeping, status
from tests.support.node.machines import third_machine
from tests.support.node.world import World
from tools.kube import node
from tools.kube.command import output
from tools.kube.kubectl import await_state, condition
from tools.kube.node import RealNode

DISK_MIB, LEFT_MIB = 64, 2  # kubelet evicts below a tenth; with nothing left it cannot even end pods, since it writes their state
FOLDER = "/var/lib/kubelet"
PLUGIN = ("--namespace=kompakt-system", "--selector=app.kubernetes.io/component=device-plugin")


@pytest.fixture
def small(kompakt: World) -> Iterator[RealNode]:
    """A machine with a disk of its own, which nobody else uses."""
    with third_machine(kompakt, disk_mib=DISK_MIB) as found:
        yield found


@contextmanager
def full_disk(world: World, one: RealNode) -> Iterator[None]:
    """Next to nothing is left for kubelet's folder, until the block ends."""
    inside(world, one, f"fallocate -l $(( $(df --output=avail -k {FOLDER} | tail -1) - {LEFT_MIB * 1024} ))KiB {FOLDER}/filler")
    try:
        yield
    finally:
        inside(world, one, f"rm {FOLDER}/filler")


def inside(world: World, one: RealNode, script: str) -> str:
    return output(node.inside(one, world.cluster.spaces, ["sh", "-c", script]))


def under_pressure(world: World, one: RealNode) -> bool:
    return condition(world.kubectl.get("node", one.name), "DiskPressure")


def held(world: World, one: RealNode) -> list[object]:
    return list(world.kubectl.get("gputopology", one.name)["status"].get("held", []))


def nodes_of(world: World, name: str) -> set[str]:
    return {pod["spec"]["nodeName"] for pod in pods_of(world, name)}


def here(one: RealNode) -> dict[str, object]:
    return {"nodeSelector": {"kubernetes.io/hostname": one.name}}


@contextmanager
def only_on(world: World, one: RealNode) -> Iterator[None]:
    """New pods go to that node alone, until the block ends."""
    others = [other.name for other in world.cluster.nodes if other.name != one.name]
    world.kubectl("cordon", *others)
    try:
        yield
    finally:
        world.kubectl("uncordon", *others)


def test_a_gang_moves_away_from_a_full_disk_and_the_node_serves_again(kompakt: World, small: RealNode, jobs: Jobs) -> None:
    with only_on(kompakt, small):
        jobs.apply("crowded-out", sleeping(10_000), gpus=2)
        await_phase(kompakt, "crowded-out", "Running")
    assert nodes_of(kompakt, "crowded-out") == {small.name}
    with full_disk(kompakt, small):
        await_state(lambda: under_pressure(kompakt, small), "DiskPressure", 60)
        await_state(lambda: status(kompakt, "crowded-out").get("attempt") == 2, "the next attempt", 120)
        await_phase(kompakt, "crowded-out", "Running")
        assert small.name not in nodes_of(kompakt, "crowded-out")
        assert status(kompakt, "crowded-out")["lastRestart"]["reason"] == "Disruption"
        await_state(lambda: not held(kompakt, small), "no GPU held on the full node", 60)
    await_state(lambda: not under_pressure(kompakt, small), "no DiskPressure", 60)
    jobs.apply("room-again", sleeping(0), gpus=4, pod=here(small))
    await_phase(kompakt, "room-again", "Succeeded")
    plugins = [pod for pod in kompakt.kubectl.items("pods", *PLUGIN) if pod["spec"]["nodeName"] == small.name]
    assert all(condition(pod, "Ready") for pod in plugins), "the device plugin there is not ready"
