"""Which fields of whose objects our accounts may write: beside each write that they need, the nearest ones that they do not."""

import json
from collections.abc import Mapping
from typing import Any, Final

import pytest

from kompakt_core import contract as c
from kompakt_extender.project import SCALE_DOWN_DISABLED
from tests.support.cluster.accounts import Account
from tools.kube.jobs import training_job
from tools.kube.parts import NAMESPACE
from tools.kube.session import ClusterSession

Object = dict[str, Any]
HERE: Final = "/api/v1/namespaces/default"
THERE: Final = "/api/v1/namespaces/kube-system"
JOBS: Final = f"/apis/{c.API_VERSION}/namespaces/default/{c.JOB_PLURAL}"
GANGS: Final = f"/apis/{c.API_VERSION}/namespaces/{{}}/{c.GANG_PLURAL}"
TOPOLOGIES: Final = f"/apis/{c.API_VERSION}/{c.TOPOLOGY_PLURAL}"
BUDGETS: Final = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
CLAIMS: Final = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
LEASES: Final = "/apis/coordination.k8s.io/v1/namespaces"
NODE: Final = "/api/v1/nodes/dgx-0"
UID: Final = "the-uid-of-mine"  # the true one is put in its place
OWNER: Final = {"apiVersion": c.API_VERSION, "kind": c.JOB_KIND, "name": "mine", "uid": UID, "controller": True}
WORKER: Final = {"labels": {c.LABEL_JOB_UID: UID}, "ownerReferences": [OWNER]}
GATES: Final = [{"name": c.GATE}, {"name": "example.com/mine"}]
SPEC: Final = {"schedulerName": c.SCHEDULER_NAME, "schedulingGates": GATES, "containers": [{"name": "c", "image": "simulated"}]}


def pod(name: str, meta: Mapping[str, Any] = WORKER, **spec: Any) -> Object:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **meta}, "spec": {**SPEC, **spec}}


def service(name: str, meta: Mapping[str, Any] = WORKER, **spec: Any) -> Object:
    told = {"clusterIP": "None", "selector": {c.LABEL_JOB_UID: UID}, **spec}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, **meta}, "spec": told}


def budget(name: str, meta: Mapping[str, Any] = WORKER, uid: str = UID) -> Object:
    spec = {"maxUnavailable": 0, "selector": {"matchLabels": {c.LABEL_JOB_UID: uid}}}
    return {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name, **meta}, "spec": spec}


def pod_template(name: str, meta: Mapping[str, Any] = WORKER) -> Object:
    spec = {"containers": SPEC["containers"]}
    return {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": name, **meta}, "template": {"spec": spec}}


def meta(**fields: Any) -> Object:
    return {"metadata": fields}


def notes(**values: str) -> Object:
    return meta(annotations={f"kompakt.dev/{key.replace('_', '-')}": value for key, value in values.items()})


def condition(kind: str) -> Object:
    since = "2026-01-31T12:00:00Z"
    one = {"type": kind, "status": "True", "reason": "Tried", "message": "", "lastTransitionTime": since}
    return {"status": {"conditions": [one]}}


def event(name: str, reporter: str) -> Object:
    about = {"kind": "Pod", "name": "mine", "namespace": "default"}
    return {"metadata": {"name": name}, "involvedObject": about, "source": {"component": reporter}, "reason": "Tried"}


def lease(name: str) -> Object:
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}}


def binding(**annotations: str) -> Object:
    return {"metadata": {"name": "plain", "annotations": annotations}, "target": {"kind": "Node", "name": "dgx-0"}}


def eviction(**options: Any) -> Object:
    return {**meta(name="plain"), "deleteOptions": {"preconditions": {"uid": UID}, **options}}


def topology(name: str, owner: str = "Node", **more: Any) -> Object:
    owners = [{"apiVersion": "v1", "kind": owner, "name": name, "uid": UID}]
    spec = {"nodeUID": UID, "source": "text", "gpus": [], "links": []}
    body = {"apiVersion": c.API_VERSION, "kind": c.TOPOLOGY_KIND, "spec": spec}
    return {**body, "metadata": {"name": name, "ownerReferences": owners, **more}}


def gang(**more: Any) -> Object:
    return {"apiVersion": c.API_VERSION, "kind": c.GANG_KIND, "metadata": {"name": "gang", **more}, "spec": {"size": 2}}


def claim(name: str, owner: str) -> Object:
    """For a pod of that name."""
    owners = [{"apiVersion": "v1", "kind": "Pod", "name": owner, "uid": UID, "controller": True}]
    requests = [{"name": "gpus", "exactly": {"deviceClassName": "gpus", "allocationMode": "ExactCount", "count": 1}}]
    meta = {"name": name, "ownerReferences": owners}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": meta,
        "spec": {"devices": {"requests": requests}},
    }


BY_CLAIM: Final = {"annotations": {c.ANN_GPUS_BY_CLAIM: "1"}}
STANDING: Final = (
    pod("strange", {}, schedulerName="nobody"),
    pod("claimed", BY_CLAIM, schedulerName="nobody"),
    pod("plain", {}),
    pod("here", {}, schedulerName="nobody", nodeName="dgx-0", schedulingGates=[]),
    service("strange", {"labels": WORKER["labels"]}),
    pod_template("strange", {"labels": WORKER["labels"]}),
    pod_template("worker"),
    budget("strange", {"labels": WORKER["labels"]}),
    pod("worker"),
    service("worker"),
    budget("worker"),
    training_job("over", suspend=True, runPolicy={"ttlSecondsAfterFinished": 60}),
    topology("dgx-2", ownerReferences=[]),  # nobody's: garbage collection ends what a Node owns that is not there
    lease("kompakt-operator"),
    lease("other"),
    {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "claim"},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "no", "resources": {"requests": {"storage": "1Gi"}}},
    },
    {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": "volume"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "other",
            "capacity": {"storage": "1Gi"},
            "hostPath": {"path": "/tmp"},
        },
    },
    {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "claim"}, "spec": {}},
)


@pytest.fixture(scope="module")
def uid(guarded: ClusterSession) -> str:
    """Of the job that owns; made beside objects of its own and of strangers."""
    _apply(guarded, json.dumps(training_job("mine", suspend=True)))
    found = guarded.kubectl("get", "trainingjob", "mine", "--namespace=default", "--output=jsonpath={.metadata.uid}")
    _apply(guarded, "\n---\n".join(map(json.dumps, STANDING)).replace(UID, found))
    over = ("--subresource=status", "--type=merge", '--patch={"status": {"phase": "Succeeded", "conditions": []}}')
    guarded.kubectl("patch", "trainingjob", "over", "--namespace=default", *over)
    return found


def _apply(cluster: ClusterSession, text: str) -> None:
    cluster.kubectl("apply", "--server-side", "--namespace=default", "-f", "-", stdin=text)


Case = tuple[str, str, str, object, str]
"""Account, method, path, body, and what the refusal says ("": it may)."""
JOBS_ONLY = "that a TrainingJob controls"
NOT_HERE = "in no namespace of the system"
OTHERS = {**WORKER, "labels": {c.LABEL_JOB_UID: "another"}}
LOOSE = {**WORKER, "ownerReferences": [{**OWNER, "controller": False}]}
FOREIGN = {**WORKER, "ownerReferences": [{**OWNER, "kind": "ReplicaSet", "apiVersion": "apps/v1"}]}
IMAGE = [{"op": "replace", "path": "/spec/containers/0/image", "value": "evil"}]
OPERATOR: tuple[Case, ...] = (
    ("operator", "POST", f"{HERE}/pods", pod("w"), ""),
    ("operator", "POST", f"{HERE}/pods", pod("w", {}), JOBS_ONLY),
    ("operator", "POST", f"{HERE}/pods", pod("w", LOOSE), JOBS_ONLY),
    ("operator", "POST", f"{HERE}/pods", pod("w", FOREIGN), JOBS_ONLY),
    ("operator", "POST", f"{HERE}/pods", pod("w", OTHERS), JOBS_ONLY),
    ("operator", "POST", f"{HERE}/pods", pod("w", schedulerName="default-scheduler"), "our scheduler"),
    ("operator", "POST", f"{HERE}/pods", pod("w", WORKER | BY_CLAIM, schedulerName="default-scheduler"), ""),
    ("operator", "POST", f"{HERE}/pods", pod("w", schedulingGates=[]), "our gate"),
    ("operator", "POST", f"{HERE}/pods", pod("w", schedulingGates=[], nodeName="dgx-0"), "no node"),
    ("operator", "POST", f"{THERE}/pods", pod("w"), NOT_HERE),
    ("operator", "POST", f"/api/v1/namespaces/{NAMESPACE}/pods", pod("w"), NOT_HERE),
    ("operator", "DELETE", f"{HERE}/pods/worker", None, ""),
    ("operator", "DELETE", f"{HERE}/pods/plain", None, JOBS_ONLY),
    ("operator", "POST", f"{HERE}/services", service("s"), ""),
    ("operator", "POST", f"{HERE}/services", service("s", LOOSE), JOBS_ONLY),
    ("operator", "POST", f"{HERE}/services", service("s", selector={"app": "bank"}), "that job's pods"),
    (
        "operator",
        "POST",
        f"{HERE}/services",
        service("s", clusterIP="", type="ExternalName", externalName="example.com"),
        "headless",
    ),
    ("operator", "POST", f"{HERE}/services", service("s", externalIPs=["192.0.2.1"]), "headless"),
    ("operator", "DELETE", f"{HERE}/services/worker", None, ""),
    ("operator", "DELETE", f"{HERE}/services/strange", None, JOBS_ONLY),
    ("operator", "POST", f"{HERE}/podtemplates", pod_template("t"), ""),
    ("operator", "POST", f"{HERE}/podtemplates", pod_template("t", LOOSE), JOBS_ONLY),
    ("operator", "POST", f"{HERE}/podtemplates", pod_template("t", OTHERS), JOBS_ONLY),
    ("operator", "DELETE", f"{HERE}/podtemplates/worker", None, ""),
    ("operator", "DELETE", f"{HERE}/podtemplates/strange", None, JOBS_ONLY),
    ("operator", "POST", BUDGETS, budget("b"), ""),
    ("operator", "POST", BUDGETS, budget("b", {}), JOBS_ONLY),
    ("operator", "POST", BUDGETS, budget("b", uid="another"), "that job's pods"),
    ("operator", "DELETE", f"{BUDGETS}/worker", None, ""),
    ("operator", "DELETE", f"{BUDGETS}/strange", None, JOBS_ONLY),
    ("operator", "DELETE", f"{JOBS}/over", None, ""),
    ("operator", "DELETE", f"{JOBS}/mine", None, "that are over"),
    ("operator", "PATCH", f"{JOBS}/mine/status", {"status": {"phase": "Pending"}}, ""),
    ("operator", "PATCH", f"{JOBS}/mine/status", condition("Running"), ""),
    ("operator", "PATCH", f"{JOBS}/mine/status", condition("Placed"), "outside of status.scheduling"),
    (
        "operator",
        "PATCH",
        f"{JOBS}/mine/status",
        {"status": {"scheduling": {"state": "Waiting"}}},
        "outside of status.scheduling",
    ),
    ("operator", "POST", f"{HERE}/events", event("e", "kompakt-operator"), ""),
    ("operator", "POST", f"{HERE}/events", event("e", "kubelet"), "own name"),
    ("operator", "POST", f"{LEASES}/default/leases", lease("kompakt-operator"), "kompakt's own namespace only"),
    ("operator", "POST", f"{LEASES}/{NAMESPACE}/leases", lease("kompakt-scheduler"), "called kompakt-operator"),
)
CLAIM_REF = {"namespace": "default", "name": "claim", "kind": "PersistentVolumeClaim"}
CHOSEN = {"volume.kubernetes.io/selected-node": "dgx-0"}
SCHEDULER: tuple[Case, ...] = (
    ("scheduler", "PATCH", NODE, meta(annotations={SCALE_DOWN_DISABLED: "true"}), ""),
    ("scheduler", "PATCH", NODE, meta(annotations={SCALE_DOWN_DISABLED: "true", "a": "b"}), SCALE_DOWN_DISABLED),
    ("scheduler", "PATCH", NODE, meta(labels={"a": "b"}), SCALE_DOWN_DISABLED),
    ("scheduler", "PATCH", NODE, {"spec": {"unschedulable": True}}, SCALE_DOWN_DISABLED),
    ("scheduler", "PATCH", f"{HERE}/pods/plain", notes(planned_node="dgx-0", rank="0"), ""),
    ("scheduler", "PATCH", f"{HERE}/pods/plain", notes(retried_at="now"), ""),
    ("scheduler", "PATCH", f"{HERE}/pods/plain", {**notes(rank="0"), "spec": {"schedulingGates": GATES[1:]}}, ""),
    ("scheduler", "PATCH", f"{HERE}/pods/plain", {"spec": {"schedulingGates": GATES[:1]}}, "at our gate"),
    ("scheduler", "PATCH", f"{HERE}/pods/plain", IMAGE, "at our gate"),
    ("scheduler", "PATCH", f"{HERE}/pods/plain", {"spec": {"nodeSelector": {"a": "b"}}}, "at our gate"),
    ("scheduler", "PATCH", f"{HERE}/pods/plain", notes(gpus="GPU-1"), "at our gate"),
    ("scheduler", "PATCH", f"{HERE}/pods/plain", meta(annotations={"a": "b"}), "at our gate"),
    ("scheduler", "PATCH", f"{HERE}/pods/plain", meta(labels={"a": "b"}), "at our gate"),
    ("scheduler", "PATCH", f"{HERE}/pods/plain", meta(finalizers=["example.com/a"]), "at our gate"),
    ("scheduler", "PATCH", f"{HERE}/pods/strange", notes(planned_node="dgx-0"), "of our scheduler"),
    ("scheduler", "PATCH", f"{HERE}/pods/claimed", notes(planned_node="dgx-0"), ""),
    ("scheduler", "PATCH", f"{HERE}/pods/claimed", notes(gpus="GPU-1", gpu_indices="0", value="1"), ""),
    ("scheduler", "PATCH", f"{HERE}/pods/claimed", notes(gpus_by_claim="2"), "annotation"),  # two policies refuse it
    ("scheduler", "PATCH", f"{HERE}/pods/plain", notes(gpus_by_claim="2"), "annotation"),
    ("scheduler", "POST", CLAIMS, claim("plain", "plain"), ""),
    ("scheduler", "POST", CLAIMS, claim("other", "plain"), "that a pod of the same name controls"),
    ("scheduler", "DELETE", f"{CLAIMS}/claim", None, "that a pod of the same name controls"),
    ("scheduler", "POST", f"{HERE}/pods/plain/binding", binding(**{"example.com/a": "b"}), "kompakt's annotations only"),
    ("scheduler", "POST", f"{THERE}/pods/plain/binding", binding(), NOT_HERE),
    ("scheduler", "POST", f"{HERE}/pods/plain/eviction", meta(name="plain"), "of the pod whose uid it names"),
    ("scheduler", "POST", f"{HERE}/pods/plain/eviction", eviction(gracePeriodSeconds=0), "of the pod whose uid it names"),
    ("scheduler", "POST", f"{THERE}/pods/plain/eviction", eviction(), NOT_HERE),
    ("scheduler", "PATCH", f"{HERE}/pods/plain/status", condition("PodScheduled"), ""),
    ("scheduler", "PATCH", f"{HERE}/pods/plain/status", {"status": {"nominatedNodeName": "dgx-0"}}, ""),
    ("scheduler", "PATCH", f"{HERE}/pods/plain/status", {"status": {"phase": "Failed"}}, "nominatedNodeName"),
    ("scheduler", "PATCH", f"{HERE}/pods/strange/status", condition("PodScheduled"), "of our scheduler"),
    ("scheduler", "PATCH", f"{JOBS}/mine/status", condition("Placed"), ""),
    ("scheduler", "PATCH", f"{JOBS}/mine/status", {"status": {"scheduling": {"state": "Waiting"}}}, ""),
    ("scheduler", "PATCH", f"{JOBS}/mine/status", condition("Running"), "at status.scheduling"),
    ("scheduler", "PATCH", f"{JOBS}/mine/status", {"status": {"phase": "Failed"}}, "at status.scheduling"),
    ("scheduler", "POST", GANGS.format("default"), gang(), ""),
    ("scheduler", "POST", GANGS.format("default"), gang(finalizers=["example.com/a"]), "nothing keeps"),
    ("scheduler", "POST", GANGS.format("default"), gang(ownerReferences=[OWNER]), "that nobody owns"),
    ("scheduler", "POST", GANGS.format("kube-system"), gang(), NOT_HERE),
    ("scheduler", "POST", f"{HERE}/events", event("e", c.SCHEDULER_NAME), ""),
    ("scheduler", "POST", f"{HERE}/events", event("e", "kubelet"), "own name"),
    ("scheduler", "PATCH", f"{HERE}/persistentvolumeclaims/claim", meta(annotations=CHOSEN), ""),
    ("scheduler", "PATCH", f"{HERE}/persistentvolumeclaims/claim", meta(annotations={"a": "b"}), "chosen node"),
    ("scheduler", "PATCH", f"{HERE}/persistentvolumeclaims/claim", {"spec": {"volumeName": "volume"}}, "chosen node"),
    ("scheduler", "PATCH", "/api/v1/persistentvolumes/volume", {"spec": {"claimRef": CLAIM_REF}}, ""),
    ("scheduler", "PATCH", "/api/v1/persistentvolumes/volume", {"spec": {"persistentVolumeReclaimPolicy": "Delete"}}, "claimRef"),
    ("scheduler", "PATCH", f"{CLAIMS}/claim", meta(finalizers=["resource.kubernetes.io/delete-protection"]), ""),
    ("scheduler", "PATCH", f"{CLAIMS}/claim", meta(labels={"a": "b"}), "at finalizers"),
    ("scheduler", "PATCH", f"{CLAIMS}/claim/status", {"status": {}}, ""),
    ("scheduler", "POST", f"{LEASES}/{NAMESPACE}/leases", lease("kompakt-operator"), "called kompakt-scheduler"),
    ("scheduler", "PATCH", f"{LEASES}/default/leases/other", {"spec": {"holderIdentity": "me"}}, "kompakt's own namespace only"),
)
PLUGIN: tuple[Case, ...] = (
    ("device-plugin", "PATCH", f"{HERE}/pods/here", notes(gpus="GPU-1"), ""),
    ("device-plugin", "PATCH", f"{HERE}/pods/here", meta(annotations={"example.com/a": "b"}), "annotations gpus"),
    # Another policy refuses this one too; whose words come is left to chance by the API server.
    ("device-plugin", "PATCH", f"{HERE}/pods/here", notes(planned_gpus="GPU-1"), "annotations"),
    ("device-plugin", "PATCH", f"{HERE}/pods/here", meta(labels={"a": "b"}), "annotations gpus"),
    ("device-plugin", "PATCH", f"{HERE}/pods/here", meta(finalizers=["example.com/a"]), "annotations gpus"),
    ("device-plugin", "PATCH", f"{HERE}/pods/here", meta(ownerReferences=[OWNER]), "annotations gpus"),
    ("device-plugin", "PATCH", f"{HERE}/pods/here", IMAGE, "annotations gpus"),
    ("device-plugin", "PATCH", f"{HERE}/pods/plain", notes(gpus="GPU-1"), "of its own node"),
    ("device-plugin", "POST", TOPOLOGIES, topology("dgx-0"), ""),
    ("device-plugin", "POST", TOPOLOGIES, topology("dgx-1"), "of its own node"),
    ("device-plugin", "POST", TOPOLOGIES, topology("dgx-0", "Pod"), "which alone owns it"),
    ("device-plugin", "POST", TOPOLOGIES, topology("dgx-0", finalizers=["example.com/a"]), "which alone owns it"),
    ("device-plugin", "PATCH", f"{TOPOLOGIES}/dgx-2/status", {"status": {"free": 8}}, "of its own node"),
    ("device-plugin", "POST", f"{HERE}/events", event("e", "kompakt-device-plugin"), ""),
    ("device-plugin", "POST", f"{HERE}/events", event("e", "kubelet"), "own name"),
    ("removal", "DELETE", f"{JOBS}/mine", None, ""),
)


@pytest.mark.parametrize(("account", "method", "path", "body", "words"), OPERATOR + SCHEDULER + PLUGIN)
def test_a_write_is_let_through_or_refused_with_a_sentence(
    guarded: ClusterSession, uid: str, account: str, method: str, path: str, body: object, words: str
) -> None:
    true_body = json.loads(json.dumps(body).replace(UID, uid))
    answer = Account(guarded, account, node="dgx-0").send(method, path, true_body)
    if words:
        assert (answer.code, words in answer.message) == (403, True), answer
    else:
        assert answer.code in (200, 201), answer


@pytest.mark.usefixtures("uid")
def test_a_device_plugin_whose_token_names_no_node_writes_nothing(guarded: ClusterSession) -> None:
    answer = Account(guarded, "device-plugin").send("PATCH", f"{HERE}/pods/here", notes(gpus="GPU-1"))
    assert (answer.code, "of its own node" in answer.message) == (403, True), answer
