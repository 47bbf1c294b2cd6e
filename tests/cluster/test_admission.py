"""Nobody but our own accounts writes what says which GPUs a pod gets: each way in is tried as a user who may do anything."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client, config
from kubernetes.client import ApiException

from kompakt_core import contract as c
from tests.support.cluster.pods import gpu_pod
from tools.kube.jobs import training_job
from tools.kube.parts import NAMESPACE
from tools.kube.pki import token_kubeconfig
from tools.kube.session import ClusterSession, eventually

STOLEN = {c.ANN_GPUS: "GPU-stolen"}


def pod(name: str, *, gpus: int = 1, gate: bool = True, notes: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    """A plain pod; gated, so that nobody binds it."""
    gates = [{"name": c.GATE}, {"name": "example.com/mine"}] if gate else []
    return gpu_pod(name, gpus, notes, schedulingGates=gates, **spec)


@pytest.fixture(scope="module")
def mallory(cluster: ClusterSession) -> Iterator[client.CoreV1Api]:
    """A user with every right that RBAC can give."""
    api = config.new_client_from_config(str(cluster.kubeconfig))
    api.set_default_header("Impersonate-User", "mallory")
    api.set_default_header("Impersonate-Group", "system:masters")
    core = client.CoreV1Api(api)

    def in_force() -> bool:  # a policy takes effect some moments after it was written
        try:
            core.create_namespaced_pod("default", pod("probe", notes=STOLEN), dry_run="All")
        except ApiException as refused:
            return refused.status == 403
        return False

    eventually(in_force, "the admission policies in force")
    yield core
    api.close()
    api.rest_client.pool_manager.clear()


def refused(call: Callable[..., Any], *arguments: Any) -> str:
    """The sentence of the refusal."""
    with pytest.raises(ApiException) as caught:
        call(*arguments)
    assert caught.value.status == 403, caught.value.body
    return str(caught.value.body)


@pytest.mark.parametrize("name", sorted(c.OWN_ANNOTATIONS))
def test_no_pod_is_made_with_an_annotation_of_ours(mallory: client.CoreV1Api, namespace: str, name: str) -> None:
    assert name in refused(mallory.create_namespaced_pod, namespace, pod("p", notes={name: "x"}))


def binding(notes: dict[str, str]) -> dict[str, Any]:
    return {"metadata": {"name": "p", "annotations": notes}, "target": {"kind": "Node", "name": "dgx-0"}}


def bind(core: client.CoreV1Api, call: str, namespace: str, body: dict[str, Any]) -> None:
    """The client's own method fails at the answer's shape, so the answer is left unread."""
    arguments = ("p", namespace, body) if call == "create_namespaced_pod_binding" else (namespace, body)
    getattr(core, call)(*arguments, _preload_content=False)


WAYS: dict[str, Callable[[client.CoreV1Api, str, dict[str, Any]], Any]] = {
    "pods": lambda core, ns, body: core.patch_namespaced_pod("p", ns, body),
    "pods/status": lambda core, ns, body: core.patch_namespaced_pod_status("p", ns, body),
    "pods/resize": lambda core, ns, body: core.patch_namespaced_pod_resize("p", ns, body),
    "pods/ephemeralcontainers": lambda core, ns, body: core.patch_namespaced_pod_ephemeralcontainers("p", ns, body),
    "pods/binding": lambda core, ns, body: bind(core, "create_namespaced_pod_binding", ns, binding(STOLEN)),
    "bindings": lambda core, ns, body: bind(core, "create_namespaced_binding", ns, binding(STOLEN)),
}

METADATA_STAYS = ("pods/resize", "pods/ephemeralcontainers")  # the API server itself leaves metadata as it is there


@pytest.mark.parametrize("way", WAYS)
def test_no_way_leads_an_annotation_of_ours_onto_a_pod(mallory: client.CoreV1Api, namespace: str, way: str) -> None:
    mallory.create_namespaced_pod(namespace, pod("p", gpus=0, gate=False, schedulerName="nobody"))
    stolen = {"metadata": {"annotations": STOLEN}}
    if way in METADATA_STAYS:
        WAYS[way](mallory, namespace, stolen)
    else:
        assert "kompakt's" in refused(WAYS[way], mallory, namespace, stolen)
    assert c.ANN_GPUS not in (mallory.read_namespaced_pod("p", namespace).metadata.annotations or {})


def test_nobody_makes_a_worker_of_a_job_or_takes_the_gate_away(mallory: client.CoreV1Api, namespace: str) -> None:
    forged = pod("worker")
    forged["metadata"]["labels"] = {c.LABEL_JOB_UID: "a-job-of-somebody"}
    assert "worker of a TrainingJob" in refused(mallory.create_namespaced_pod, namespace, forged)
    mallory.create_namespaced_pod(namespace, pod("p"))
    label = {"metadata": {"labels": {c.LABEL_ATTEMPT: "1"}}}
    assert "worker of a TrainingJob" in refused(mallory.patch_namespaced_pod, "p", namespace, label)
    gates = [{"op": "replace", "path": "/spec/schedulingGates", "value": [{"name": "example.com/mine"}]}]
    assert "scheduling gate" in refused(mallory.patch_namespaced_pod, "p", namespace, gates)
    mallory.patch_namespaced_pod("p", namespace, [{"op": "remove", "path": "/spec/schedulingGates/1"}])
    mallory.patch_namespaced_pod("p", namespace, {"metadata": {"annotations": {c.ANN_PATTERN: "Ring"}, "labels": {"a": "b"}}})


ASKING = {"name": "i", "image": "simulated", "resources": {"limits": {c.RESOURCE: "1"}}}


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (pod("p", gate=False, schedulerName="default-scheduler"), "needs schedulerName: kompakt-scheduler"),
        (pod("p", gate=False, nodeName="dgx-0"), "may not name its node"),
        (pod("p", gate=False, gpus=0, nodeName="dgx-0", initContainers=[ASKING]), "may not name its node"),
    ],
    ids=["another scheduler", "a node of its own", "an init container"],
)
def test_pods_with_our_gpus_come_through_our_scheduler(
    mallory: client.CoreV1Api, namespace: str, body: dict[str, Any], words: str
) -> None:
    assert words in refused(mallory.create_namespaced_pod, namespace, body)


def plugin_of(cluster: ClusterSession, node: str, folder: Path) -> client.ApiClient:
    """The device plugin's account as its pod on that node has it: its token names the node."""
    reference = {"kind": "Node", "apiVersion": "v1", "name": node}
    body = {"spec": {"audiences": [], "expirationSeconds": 3600, "boundObjectRef": reference}}
    path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/kompakt-device-plugin/token"
    token = cluster.parts.api.create(path, {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", **body})
    authority = cluster.plane.keys.authority.certificate_file
    file = token_kubeconfig(folder / node, cluster.plane.addresses.server, authority, token["status"]["token"])
    return config.new_client_from_config(str(file))


def test_a_device_plugin_reaches_its_own_nodes_pods_and_its_own_gputopology_only(
    plugins: ClusterSession, mallory: client.CoreV1Api, namespace: str, tmp_path: Path
) -> None:
    mallory.create_namespaced_pod(namespace, pod("p", gpus=0, gate=False, nodeName="dgx-0", schedulerName="nobody"))
    own, other = (plugin_of(plugins, node, tmp_path) for node in ("dgx-0", "dgx-1"))
    notes = {"metadata": {"annotations": STOLEN}}
    health = {"metadata": {"annotations": {"seen": "yes"}}}
    topologies = ("kompakt.dev", "v1alpha1", c.TOPOLOGY_PLURAL)
    try:
        assert "only of its own node" in refused(client.CoreV1Api(other).patch_namespaced_pod, "p", namespace, notes)
        label = {"metadata": {"labels": {"a": "b"}}}
        assert "only of its own node, at the annotations" in refused(
            client.CoreV1Api(own).patch_namespaced_pod, "p", namespace, label
        )
        client.CoreV1Api(own).patch_namespaced_pod("p", namespace, notes)
        words = refused(client.CustomObjectsApi(other).patch_cluster_custom_object, *topologies, "dgx-0", health)
        assert "only of its own node" in words
        client.CustomObjectsApi(own).patch_cluster_custom_object(*topologies, "dgx-0", health)
    finally:
        for api in (own, other):
            api.close()
            api.rest_client.pool_manager.clear()


def test_what_stands_in_our_objects_is_written_by_our_accounts_alone(
    plugins: ClusterSession, mallory: client.CoreV1Api, namespace: str
) -> None:
    objects = client.CustomObjectsApi(mallory.api_client)
    jobs = (c.GROUP, c.VERSION, namespace, c.JOB_PLURAL)
    topologies = (c.GROUP, c.VERSION, c.TOPOLOGY_PLURAL)
    objects.create_namespaced_custom_object(*jobs, training_job("mine", suspend=True))
    forged = {"status": {"scheduling": {"state": "Waiting"}}}
    assert "only kompakt's operator and scheduler" in refused(
        objects.patch_namespaced_custom_object_status, *jobs, "mine", forged
    )
    for call, body in (
        (objects.patch_cluster_custom_object, {"spec": {"gpus": []}}),
        (objects.patch_cluster_custom_object_status, {"status": {"free": 99}}),
    ):
        assert "only kompakt's device plugin" in refused(call, *topologies, "dgx-0", body)
    found = objects.get_cluster_custom_object(*topologies, "dgx-0")
    made = {**found, "metadata": {"name": "dgx-7"}}
    assert "only kompakt's device plugin" in refused(objects.create_cluster_custom_object, *topologies, made)
    objects.patch_cluster_custom_object(*topologies, "dgx-0", {"metadata": {"labels": {"a": "b"}}})


@pytest.mark.parametrize("place", ["kube-system", NAMESPACE])
def test_nothing_of_ours_runs_in_a_namespace_of_the_system(mallory: client.CoreV1Api, place: str) -> None:
    jobs = (c.GROUP, c.VERSION, place, c.JOB_PLURAL)
    objects = client.CustomObjectsApi(mallory.api_client)
    job = training_job("mine", suspend=True)
    assert "no namespace of the system" in refused(objects.create_namespaced_custom_object, *jobs, job)
    body = pod("p", schedulerName=c.SCHEDULER_NAME)
    assert "no namespace of the system" in refused(mallory.create_namespaced_pod, place, body)


def test_who_may_edit_in_a_namespace_may_run_jobs_and_who_may_view_may_look(cluster: ClusterSession) -> None:
    for role in ("view", "edit"):
        cluster.kubectl("create", "rolebinding", f"is-{role}", f"--clusterrole={role}", f"--user={role}er", "-n", "default")
    try:
        eventually(lambda: _can(cluster, "editer", "create", "trainingjobs"), "aggregation")
        assert _can(cluster, "viewer", "get", "trainingjobs")
        assert not _can(cluster, "viewer", "create", "trainingjobs")
        assert not _can(cluster, "editer", "patch", "trainingjobs/status")
    finally:
        cluster.kubectl("delete", "rolebinding", "is-view", "is-edit", "-n", "default")


def _can(cluster: ClusterSession, user: str, verb: str, resource: str) -> bool:
    asked = {"namespace": "default", "verb": verb, "group": c.GROUP}
    name, _, part = resource.partition("/")
    spec = {"user": user, "resourceAttributes": {**asked, "resource": name, **({"subresource": part} if part else {})}}
    review = client.AuthorizationV1Api(cluster.api).create_subject_access_review({"spec": spec})
    return bool(review.status.allowed)
