"""`helm uninstall` while a gang trains: pods run on where definitions are kept, and end where they go with the release."""

from collections.abc import Iterator

import pytest

from kompakt_core.contract import LABEL_JOB_UID
from tests.support.node.jobs import Jobs, pods_of, sleeping, status
from tests.support.node.world import World
from tests.support.turns import in_turn
from tools.kube import binaries, install, scatter, stack
from tools.kube.command import output
from tools.kube.kubectl import await_state
from tools.kube.parts import NAMESPACE, RELEASE

DEFINITIONS = "customresourcedefinitions"
POLICIES = ",".join(f"{what}admissionpolic{end}" for what in ("validating", "mutating") for end in ("ies", "ybindings"))


def installed(world: World) -> None:
    """kompakt as it was, with all GPUs of the real nodes."""
    install.helm_install(world.cluster, world.images)
    install.await_gpus(world.kubectl, dict.fromkeys(stack.REAL_NODES, scatter.GPUS))


@pytest.fixture
def installed_again(kompakt: World, jobs: Jobs) -> Iterator[World]:
    """kompakt is installed afterwards, and before jobs are deleted."""
    yield kompakt
    installed(kompakt)


def workers(world: World) -> list[tuple[str, str]]:
    """Names and phases of all pods that belong to a job, of all namespaces."""
    pods = world.kubectl.items("pods", "--all-namespaces", f"--selector={LABEL_JOB_UID}")
    return sorted((pod["metadata"]["name"], pod["status"]["phase"]) for pod in pods)


def definitions(world: World) -> set[str]:
    return {found["metadata"]["name"] for found in world.kubectl.items(DEFINITIONS) if "kompakt.dev" in found["metadata"]["name"]}


def train(world: World, jobs: Jobs) -> list[tuple[str, str]]:
    jobs.apply("staying", sleeping(10_000), gpus=6)
    await_state(lambda: [phase for _, phase in of_job(world)] == ["Running"] * 2, "both workers running", 90)
    return of_job(world)


def of_job(world: World) -> list[tuple[str, str]]:
    """Those of the job that trains; other tests left jobs that are over."""
    return [(name, phase) for name, phase in workers(world) if name.startswith("staying-worker-")]


def ours(world: World) -> list[str]:
    """What of the release is left."""
    kinds = (
        "deployments,daemonsets,jobs,serviceaccounts,roles,rolebindings,services,configmaps,poddisruptionbudgets,networkpolicies"
    )
    selector = "--selector=app.kubernetes.io/name=kompakt"
    inside = world.kubectl.items(kinds, f"--namespace={NAMESPACE}", selector)
    everywhere = world.kubectl.items(f"clusterroles,clusterrolebindings,{POLICIES}", selector)
    return sorted(f"{found['kind']} {found['metadata']['name']}" for found in (*inside, *everywhere))


@in_turn(1)
def test_pods_run_on_without_kompakt_and_end_with_the_definitions(installed_again: World, jobs: Jobs) -> None:
    world, before = installed_again, train(installed_again, jobs)
    install.helm_uninstall(world.cluster)
    assert (len(definitions(world)), of_job(world)) == (4, before)
    left = ours(world)
    assert left, "policies stay as long as pods"
    assert [one for one in left if not one.startswith("ValidatingAdmissionPolicy")] == []

    installed(world)
    found = status(world, "staying")
    assert (found["phase"], found["attempt"], of_job(world)) == ("Running", 1, before), "the next install takes them up"
    held = {one["podUID"] for topology in world.kubectl.items("gputopologies") for one in topology["status"].get("held") or ()}
    assert {pod["metadata"]["uid"] for pod in pods_of(world, "staying")} <= held

    where = (f"--kubeconfig={world.cluster.kubeconfig}", f"--namespace={NAMESPACE}", "--wait", "--timeout=300s")
    change = ("--reset-then-reuse-values", "--set=crds.keep=false")
    output([binaries.find("helm"), "upgrade", RELEASE, install.CHART, *change, *where])
    install.helm_uninstall(world.cluster)
    await_state(lambda: not definitions(world), "no definition of ours", 60)
    await_state(lambda: not workers(world), "no worker", 60)
    assert ours(world) == []
