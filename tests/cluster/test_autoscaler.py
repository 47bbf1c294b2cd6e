"""Gangs that fit on no node ask for nodes, without Kueue: on a real control plane, with the real kind of cluster-autoscaler."""

import json
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from kompakt_core import contract as c
from kompakt_core.contract import timestamps
from kompakt_core.job.provisioning import AGAIN_SECONDS
from kompakt_extender.project import SCALE_DOWN_DISABLED
from tests.support.cluster import autoscaler, waits
from tests.support.cluster.accounts import Account
from tests.support.cluster.autoscaler import CLASS, CONSUMES, Autoscaler
from tests.support.cluster.own_cluster import own_cluster
from tests.support.cluster.reading import await_reason, topologies
from tools.kube import simulated
from tools.kube.jobs import JobManifest, apply, training_job
from tools.kube.parts import Pair
from tools.kube.session import ClusterSession, KubectlFailed, eventually, stays

AFTER_SECONDS = 15
WATCHED = pytest.mark.usefixtures("watched")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterSession]:
    """One machine of eight GPUs, and nobody who would add others by himself."""
    with own_cluster(tmp_path_factory.mktemp("autoscaler"), simulated.machines(1)) as cluster:
        autoscaler.define(cluster)
        kept = {"autoscaler.keepNodesAfterSeconds": "1", "consolidation.overtakenAtMost": "1"}
        cluster.parts.install({**waits.LEASE, **kept, "autoscaler.provisioningClassName": CLASS})
        cluster.start(cluster.parts.simulated_plugins())
        asking = f"--provisioning-class={CLASS}", f"--ask-for-nodes-after={AFTER_SECONDS}"
        cluster.start(cluster.parts.operator("operator-0", *asking))
        yield cluster


@pytest.fixture(scope="module", autouse=True)
def pair(cluster: ClusterSession) -> Pair:
    return cluster.start_pair("scheduler-0")


@pytest.fixture(scope="module")
def kompakt(cluster: ClusterSession) -> ClusterSession:
    return cluster


@pytest.fixture
def scaler(cluster: ClusterSession, namespace: str) -> Iterator[Autoscaler]:
    """The stand-in; the nodes that it added go after the test."""
    before = {node.metadata.name for node in cluster.core.list_node().items}
    yield Autoscaler(cluster, namespace)
    added = {node.metadata.name for node in cluster.core.list_node().items} - before
    for name in added:
        cluster.core.delete_node(name)
    eventually(lambda: not added & topologies(cluster).keys(), "their GPUTopologies are gone")


def submit(scaler: Autoscaler, name: str = "train", pods: int = 3, gpus: int = 8) -> JobManifest:
    """A job that runs until it is deleted."""
    return apply(scaler.cluster, scaler.namespace, training_job(name, replicas=pods, gpus=gpus, seconds=None))


def waits_for_nodes(job: JobManifest, words: str) -> None:
    eventually(lambda: words in await_reason(job, "WaitingForNodes", "Reconciling"), f"{job.name} says {words!r}")


def nothing_is_left(scaler: Autoscaler) -> None:
    eventually(lambda: (scaler.requests, scaler.templates) == ([], []), "no request and no PodTemplate is left")


@WATCHED
def test_a_gang_that_fits_on_no_node_runs_on_those_that_are_made_for_it(scaler: Autoscaler) -> None:
    job = submit(scaler)
    request = scaler.asked()
    assert request["spec"]["provisioningClassName"] == CLASS
    assert (request["metadata"]["name"], scaler.gpus(request)) == ("train-a1", 24)
    assert request["metadata"]["ownerReferences"][0]["uid"] == job.read()["metadata"]["uid"]
    waits_for_nodes(job, "ProvisioningRequest train-a1: not answered yet")
    scaler.tells(request, "Accepted", "cluster-autoscaler looks for nodes")
    waits_for_nodes(job, "ProvisioningRequest train-a1: cluster-autoscaler looks for nodes")
    assert job.pods() == []
    scaler.adds_nodes(scaler.asked(), "new")
    job.await_phase("Running")
    assert {pod.metadata.annotations[CONSUMES] for pod in job.pods()} == {"train-a1"}
    stays(lambda: [one["metadata"]["uid"] for one in scaler.requests], rounds=10)
    job.delete()
    nothing_is_left(scaler)


@WATCHED
def test_a_failure_is_told_others_go_on_and_nodes_are_asked_for_again(scaler: Autoscaler) -> None:
    job = submit(scaler)
    first = scaler.asked()
    scaler.tells(first, "Failed", "no node group has 24 GPUs")
    waits_for_nodes(job, "no node group has 24 GPUs; it is made anew at ")
    small = submit(scaler, "small", pods=2, gpus=2)
    small.await_phase("Running")
    stays(lambda: [one["metadata"]["uid"] for one in scaler.requests], rounds=10)
    scaler.tells(first, "Failed", "no node group had 24 GPUs", moment=time.time() - AGAIN_SECONDS)
    eventually(lambda: [one["metadata"]["uid"] for one in scaler.requests] not in ([], [first["metadata"]["uid"]]), "again")
    waits_for_nodes(job, "not answered yet")
    assert all(CONSUMES not in pod.metadata.annotations for pod in small.pods())
    job.delete()
    nothing_is_left(scaler)


def test_a_job_that_is_suspended_asks_no_more(scaler: Autoscaler) -> None:
    job = submit(scaler)
    scaler.asked()
    job.patch({"spec": {"suspend": True}})
    nothing_is_left(scaler)
    job.patch({"spec": {"suspend": False}})
    assert scaler.asked()["metadata"]["name"] == "train-a2"


@WATCHED
def test_a_gang_that_only_waits_for_others_asks_after_a_while(scaler: Autoscaler) -> None:
    submit(scaler, "first", pods=1).await_phase("Running")
    waiting = submit(scaler, "second", pods=1)
    eventually(lambda: waiting.status.get("scheduling", {}).get("reason") == "Waiting", "it waits")
    stays(lambda: scaler.requests, rounds=10)
    assert scaler.requests == []
    request = scaler.asked()
    began = timestamps.seconds(waiting.status["scheduling"]["waitingSince"]) or 0.0
    assert (timestamps.seconds(request["metadata"]["creationTimestamp"]) or 0.0) >= began + AFTER_SECONDS
    scaler.adds_nodes(request, "spare")
    waiting.await_phase("Running")


@WATCHED
def test_another_operator_goes_on_with_the_request_of_the_first(scaler: Autoscaler) -> None:
    job = submit(scaler)
    request = scaler.asked()
    cluster = scaler.cluster
    cluster.kill("operator-0")
    cluster.restart("operator-0")
    scaler.tells(request, "Accepted", "seen by the next one")
    waits_for_nodes(job, "seen by the next one")
    assert scaler.asked()["metadata"]["uid"] == request["metadata"]["uid"]
    scaler.adds_nodes(request, "later")
    job.await_phase("Running")


def test_the_operator_s_account_asks_for_nobody_else(scaler: Autoscaler) -> None:
    """Its policy lets it neither make nor delete what belongs to no TrainingJob, whatever the labels say."""
    job = submit(scaler)
    request, mine = scaler.asked(), Account(scaler.cluster, "operator")
    path = f"/apis/{autoscaler.GROUP}/{autoscaler.VERSION}/namespaces/{scaler.namespace}/{autoscaler.PLURAL}"
    labels, owners = {c.LABEL_JOB_UID: job.read()["metadata"]["uid"]}, request["metadata"]["ownerReferences"]
    own = {**request, "metadata": {"name": "more", "labels": labels, "ownerReferences": owners}}
    foreign = {**own, "metadata": {"name": "theirs", "labels": labels}}
    assert mine.send("POST", path, own).code == 201
    refused = mine.send("POST", path, foreign)
    assert (refused.code, "only that a TrainingJob controls" in refused.message) == (403, True)
    scaler.cluster.custom.create_namespaced_custom_object(
        autoscaler.GROUP, autoscaler.VERSION, scaler.namespace, autoscaler.PLURAL, foreign
    )
    assert mine.send("DELETE", f"{path}/theirs").code == 403
    assert mine.send("DELETE", f"{path}/train-a1").code == 200
    assert mine.send("PATCH", f"{path}/train-a1/status", {"status": {}}).code == 403


def kept_nodes(cluster: ClusterSession) -> set[str]:
    return {
        node.metadata.name
        for node in cluster.core.list_node().items
        if (node.metadata.annotations or {}).get(SCALE_DOWN_DISABLED) == "true"
    }


def test_what_an_administrator_says_of_a_node_is_not_overwritten(cluster: ClusterSession) -> None:
    """As the planner writes it, and not by force."""
    cluster.kubectl("annotate", "node", "sim-0", f"{SCALE_DOWN_DISABLED}=false")
    body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "sim-0", "annotations": {SCALE_DOWN_DISABLED: "true"}}}
    with pytest.raises(KubectlFailed, match="conflict"):
        cluster.kubectl("apply", "--server-side", "--field-manager=kompakt-planner", "-f", "-", stdin=json.dumps(body))
    cluster.kubectl("annotate", "node", "sim-0", f"{SCALE_DOWN_DISABLED}-")


@WATCHED
def test_a_node_whose_gpus_are_reserved_is_kept_until_they_are_given_out(scaler: Autoscaler) -> None:
    """A gang of another namespace overtakes one that waits; it is a later one if it comes in a later second."""
    cluster = scaler.cluster
    others = replace(scaler, namespace="default")
    small = [submit(others, "small-0", pods=1, gpus=1)]
    small[0].await_phase("Running")
    whole = submit(scaler, "whole", pods=1, gpus=8)
    eventually(lambda: whole.status.get("scheduling", {}).get("state") == "Waiting", "it waits")
    time.sleep(1.1)
    small.append(submit(others, "small-1", pods=1, gpus=1))
    small[-1].await_phase("Running")
    eventually(lambda: whole.status["scheduling"]["state"] == "Reserved", "GPUs are reserved for it")
    (reserved,) = whole.status["scheduling"]["reserved"]
    eventually(lambda: kept_nodes(cluster) == {reserved["node"]}, "the node is kept")
    stays(lambda: kept_nodes(cluster), rounds=6)
    assert (reserved["node"], reserved["gpus"]) == ("sim-0", 8)
    for job in small:
        job.delete()
    whole.await_phase("Running")
    eventually(lambda: kept_nodes(cluster) == set(), "nothing is reserved any more")
