"""A network policy cuts a part of kompakt off the API server: what runs runs on, new jobs start, and it serves again later."""

import pytest

from kompakt_core.contract import OPERATOR_LEASE, bound_gpus
from tests.support.node.commands import kompakt_command
from tests.support.node.cuts import API_SERVER, SYSTEM, cut, part_pods
from tests.support.node.jobs import await_phase, pods_of, sleeping, status
from tools.kube.following import container_gpus
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


def waits_for_the_plugin(world, name):
    conditions = [one for pod in pods_of(world, name) for one in pod["status"].get("conditions", ())]
    return any("has not reported an earlier pod of the same size" in one.get("message", "") for one in conditions)


def test_a_node_whose_device_plugin_is_cut_off_the_api_server_takes_one_pod_of_a_size(kompakt, running, jobs):
    plugin = next(pod for pod in part_pods(kompakt, "device-plugin") if pod["spec"]["nodeName"] == "node-1")
    one = {"replicas": 1, "gpus": 2, "pod": {"nodeSelector": {"kubernetes.io/hostname": "node-1"}}}
    with cut(kompakt, plugin, API_SERVER):
        jobs.apply("plugin-cut", sleeping(10_000), **one)
        await_phase(kompakt, "plugin-cut", "Running", seconds=120)
        name = pods_of(kompakt, "plugin-cut")[0]["metadata"]["name"]
        has = container_gpus(kompakt.kubectl, name)
        assert len(set(has)) == 2
        jobs.apply("plugin-cut-next", sleeping(0), **one)
        await_state(lambda: waits_for_the_plugin(kompakt, "plugin-cut-next"), "why the next one waits", 120)
    await_phase(kompakt, "plugin-cut-next", "Succeeded", seconds=120)
    written = bound_gpus.uuids(pods_of(kompakt, "plugin-cut")[0]["metadata"]["annotations"])
    assert (set(written), container_gpus(kompakt.kubectl, name)) == (set(has), has)
    await_state(lambda: all(ready(kompakt, "device-plugin")), "device plugins ready", 60)
