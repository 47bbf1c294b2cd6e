"""A network policy cuts a part of kompakt off the API server: what runs runs on, new jobs start, and it serves again later."""

import pytest

from kompakt_core.contract import OPERATOR_LEASE
from tests.support.node.commands import kompakt_command
from tests.support.node.cuts import API_SERVER, SYSTEM, cut, part_pods
from tests.support.node.jobs import await_phase, pods_of, sleeping, status
from tools.kube.kubectl import await_state, condition
from tools.kube.parts import RELEASE

LEASES = {"operator": OPERATOR_LEASE, "scheduler": f"{RELEASE}-scheduler"}


def active(world, part):
    """The pod that holds the part's Lease."""
    holder = world.kubectl.get("lease", LEASES[part], f"--namespace={SYSTEM}")["spec"]["holderIdentity"].partition("_")[0]
    return next(pod for pod in part_pods(world, part) if pod["metadata"]["name"] == holder)


def ready(world, part):
    return [condition(pod, "Ready") for pod in part_pods(world, part)]


@pytest.fixture
def running(kompakt, jobs):
    """A gang that is there all the time; nothing of it is started anew."""
    jobs.apply("runs-on", sleeping(10_000), gpus=1)
    await_phase(kompakt, "runs-on", "Running")
    before = {pod["metadata"]["uid"] for pod in pods_of(kompakt, "runs-on")}
    yield
    assert {pod["metadata"]["uid"] for pod in pods_of(kompakt, "runs-on")} == before
    assert (status(kompakt, "runs-on")["phase"], status(kompakt, "runs-on")["attempt"]) == ("Running", 1)


@pytest.mark.parametrize("part", LEASES)
def test_the_other_replica_takes_over_from_one_that_is_cut_off_the_api_server(kompakt, running, jobs, part):
    first = active(kompakt, part)
    with cut(kompakt, first, API_SERVER):
        jobs.apply(f"{part}-cut", sleeping(0), gpus=1)
        await_phase(kompakt, f"{part}-cut", "Succeeded", seconds=120)
        assert active(kompakt, part)["metadata"]["name"] != first["metadata"]["name"]
        done = kompakt_command(kompakt, "explain", "nodes")
        assert done.returncode == 0, done.stderr
    await_state(lambda: ready(kompakt, part) == [True, True], f"both pods of the {part} ready", 120)


def test_jobs_come_and_go_on_a_node_whose_device_plugin_is_cut_off_the_api_server(kompakt, running, jobs):
    plugin = next(pod for pod in part_pods(kompakt, "device-plugin") if pod["spec"]["nodeName"] == "node-1")
    with cut(kompakt, plugin, API_SERVER):
        for number in range(3):
            jobs.apply(f"plugin-cut-{number}", sleeping(0), gpus=2, pod={"nodeSelector": {"kubernetes.io/hostname": "node-1"}})
        for number in range(3):
            await_phase(kompakt, f"plugin-cut-{number}", "Succeeded", seconds=120)
    await_state(lambda: all(ready(kompakt, "device-plugin")), "device plugins ready", 60)
