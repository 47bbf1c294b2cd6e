"""What an administrator's Limits let jobs ask for, on the real API server."""

import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from kubernetes.client import ApiException

from kompakt_core import contract as c
from tests.support.cluster.accounts import Account
from tests.support.cluster.reading import scheduling
from tests.support.cluster.waits import LONG
from tools.kube.jobs import apply, training_job
from tools.kube.session import ClusterSession, eventually

Object = dict[str, Any]
JOBS = (c.GROUP, c.VERSION, "default", c.JOB_PLURAL)
NARROW: Object = {
    "maxWorkers": 4,
    "maxGPUs": 16,
    "maxEdges": 2,
    "maxMinRuntimeSeconds": 600,
    "maxConsolidationWaitSeconds": 900,
    "maxGracePeriodSeconds": 120,
}
RECOUNTED = 330.0  # seconds
HERE = {"matchLabels": {"kubernetes.io/metadata.name": "default"}}


def term(operator: str, *values: str, key: str = "kubernetes.io/metadata.name") -> Object:
    return {"matchExpressions": [{"key": key, "operator": operator, **({"values": list(values)} if values else {})}]}


def refusal(cluster: ClusterSession, job: Object) -> str:
    """What the API server says of a job; "" where it takes it."""
    try:
        cluster.custom.create_namespaced_custom_object(*JOBS, job, dry_run="All")
    except ApiException as refused:
        return str(json.loads(refused.body)["message"])
    return ""


class Limited:
    """Limits named "narrow", told anew."""

    def __init__(self, cluster: ClusterSession) -> None:
        self.cluster = cluster
        self._number = 0

    def tell(self, **spec: Any) -> None:
        """Returns when the API server goes by them: it hears of other parameters some moments later. A mark that comes with
        them, a PriorityClass of their own, says when."""
        self._number += 1
        mark = f"mark-{self._number}"
        for name, told in (("narrow", spec), ("mark", {"priorityClassNames": [mark], "maxWorkers": 1})):
            body = {"apiVersion": c.API_VERSION, "kind": c.LIMITS_KIND, "metadata": {"name": name}, "spec": told}
            self.cluster.kubectl("apply", "-f", "-", stdin=json.dumps(body))
        probe = training_job("probe", replicas=2, priorityClassName=mark)
        eventually(lambda: "Limits mark" in refusal(self.cluster, probe), "the new Limits in force")


@pytest.fixture
def limited(guarded: ClusterSession) -> Iterator[Limited]:
    yield Limited(guarded)
    guarded.kubectl("delete", c.LIMITS_PLURAL, "--all")


def pod(name: str = "plain", gpus: str = "1", notes: Object | None = None, **spec: Any) -> Object:
    """Of two containers, one with GPUs."""
    trainer = {"name": "trainer", "image": "simulated", "resources": {"limits": {c.RESOURCE: gpus}}}
    told = {"schedulerName": c.SCHEDULER_NAME, "containers": [trainer, {"name": "beside", "image": "simulated"}], **spec}
    return {"metadata": {"name": name, "annotations": notes or {}}, "spec": told}


def pod_refusal(cluster: ClusterSession, made: Object) -> str:
    """The same of a pod; the name is one that no other test has left there."""
    named = {**made, "metadata": {**made["metadata"], "name": f"asked-{uuid.uuid4().hex[:8]}"}}
    try:
        cluster.core.create_namespaced_pod("default", named, dry_run="All")
    except ApiException as refused:
        return str(json.loads(refused.body)["message"])
    return ""


def job(**spec: Any) -> Object:
    return training_job("j", **spec)


def with_edges(count: int) -> Object:
    edges = [{"from": 0, "to": to, "weight": 1} for to in range(1, count + 1)]
    return job(gpus=8, communication={"pattern": "Custom", "customEdges": {"scope": "Pod", "edges": edges}})


def with_grace(seconds: int) -> Object:
    body = job()
    body["spec"]["roles"][0]["template"]["spec"]["terminationGracePeriodSeconds"] = seconds
    return body


def waiting(mode: str, block: int | None = None) -> Object:
    waits = {} if block is None else {"machineWaitSeconds": 1, "rackWaitSeconds": 2, "blockWaitSeconds": block}
    return job(placement={"consolidation": {"mode": mode, **waits}})


def patient(**preemption: int) -> Object:
    return job(runPolicy={"preemption": preemption})


@pytest.mark.parametrize(
    ("within", "beyond", "words"),
    [
        (job(replicas=4, gpus=1), job(replicas=5, gpus=1), "asks for 5 pods; Limits narrow of the cluster allow 4 (maxWorkers)"),
        (job(replicas=4, gpus=4), job(replicas=3, gpus=6), "asks for 18 GPUs; Limits narrow of the cluster allow 16 (maxGPUs)"),
        (with_edges(2), with_edges(3), "3 custom edges"),
        (patient(minRuntimeSeconds=600), patient(minRuntimeSeconds=601), "allow 600 (maxMinRuntimeSeconds)"),
        (patient(gracePeriodSeconds=120), patient(gracePeriodSeconds=121), "allow 120 (maxGracePeriodSeconds)"),
        (waiting("Fixed", 900), waiting("Fixed", 901), "901 as placement.consolidation.blockWaitSeconds; Limits narrow"),
        (waiting("NoWait"), waiting("Fixed"), "3600 as placement.consolidation.blockWaitSeconds"),
        (waiting("Default"), waiting("NeverRelax"), "NeverRelax, a wait without end; Limits narrow of the cluster allow 900"),
        (with_grace(120), with_grace(121), "121 as terminationGracePeriodSeconds"),
    ],
    ids=[
        "workers",
        "GPUs",
        "edges",
        "minRuntimeSeconds",
        "gracePeriodSeconds",
        "waits",
        "default of Fixed",
        "NeverRelax",
        "terminationGracePeriodSeconds",
    ],
)
def test_a_job_beyond_its_limits_is_refused_with_both_numbers(
    limited: Limited, within: Object, beyond: Object, words: str
) -> None:
    limited.tell(**NARROW)
    assert refusal(limited.cluster, within) == ""
    assert words in refusal(limited.cluster, beyond)


def test_custom_patterns_can_be_forbidden(limited: Limited) -> None:
    limited.tell(mayUseCustomPatterns=False)
    assert "Limits narrow of the cluster do not let it (mayUseCustomPatterns)" in refusal(limited.cluster, with_edges(1))
    assert refusal(limited.cluster, job(gpus=8, communication={"pattern": "Ring"})) == ""


def test_what_a_job_does_not_say_counts_as_its_default(limited: Limited) -> None:
    limited.tell(maxMinRuntimeSeconds=299)
    assert "300 as runPolicy.preemption.minRuntimeSeconds" in refusal(limited.cluster, job())


@pytest.mark.parametrize(
    ("selector", "meant"),
    [
        (None, True),
        (HERE, True),
        ({"matchLabels": {"kubernetes.io/metadata.name": "elsewhere"}}, False),
        ({"matchLabels": {"absent": ""}}, False),
        (term("In", "default", "other"), True),
        (term("In", "other"), False),
        (term("In", "default", key="absent"), False),
        (term("NotIn", "other"), True),
        (term("NotIn", "default"), False),
        (term("NotIn", "default", key="absent"), True),
        (term("Exists"), True),
        (term("Exists", key="absent"), False),
        (term("DoesNotExist", key="absent"), True),
        (term("DoesNotExist"), False),
        ({**HERE, **term("NotIn", "default")}, False),
    ],
)
def test_limits_mean_the_namespaces_that_a_label_selector_means(limited: Limited, selector: Object | None, meant: bool) -> None:
    limited.tell(maxWorkers=1, **({"namespaceSelector": selector} if selector else {}))
    assert bool(refusal(limited.cluster, job(replicas=2))) == meant


def test_limits_of_priority_classes_go_by_the_jobs_or_else_the_templates(limited: Limited) -> None:
    limited.tell(maxWorkers=1, priorityClassNames=["low", ""])
    by_template = job(replicas=2)
    by_template["spec"]["roles"][0]["template"]["spec"]["priorityClassName"] = "low"
    meant = {
        "low": job(replicas=2, priorityClassName="low"),
        "none": job(replicas=2),
        "template": by_template,
    }
    assert [name for name, one in meant.items() if not refusal(limited.cluster, one)] == []
    assert refusal(limited.cluster, job(replicas=2, priorityClassName="high")) == ""


CUSTOM = {c.ANN_PATTERN: "Custom", c.ANN_EDGES: "0-1,1-2"}


@pytest.mark.parametrize(
    ("within", "beyond", "words"),
    [
        (pod(gpus="16"), pod(gpus="17"), "this pod asks for 17 GPUs; Limits narrow of the cluster allow 16 (maxGPUs)"),
        (pod(), pod(gpus="1k"), "this pod asks for 1000 GPUs"),
        (pod(notes=CUSTOM), pod(notes={**CUSTOM, c.ANN_EDGES: "0-1,1-2,2-3"}), "3 custom edges"),
        (
            pod(terminationGracePeriodSeconds=120),
            pod(terminationGracePeriodSeconds=121),
            "this pod asks for 121 as terminationGracePeriodSeconds; Limits narrow of the cluster allow 120",
        ),
    ],
    ids=["GPUs", "written otherwise", "edges", "terminationGracePeriodSeconds"],
)
def test_a_plain_pod_beyond_its_limits_is_refused_as_a_gang_of_one(
    limited: Limited, within: Object, beyond: Object, words: str
) -> None:
    limited.tell(**NARROW)
    eventually(lambda: words in pod_refusal(limited.cluster, beyond), "the policy of plain pods in force")
    assert pod_refusal(limited.cluster, within) == ""


def test_limits_select_plain_pods_by_namespace_and_class_and_leave_others_alone(limited: Limited) -> None:
    cluster = limited.cluster
    limited.tell(maxGPUs=0, mayUseCustomPatterns=False)
    eventually(lambda: "maxGPUs" in pod_refusal(cluster, pod()), "the policy of plain pods in force")
    none = {"schedulerName": "default-scheduler", "containers": [{"name": "trainer", "image": "simulated"}]}
    assert pod_refusal(cluster, {"metadata": {"name": "without"}, "spec": none}) == ""
    limited.tell(mayUseCustomPatterns=False)
    assert "this pod has pattern Custom" in pod_refusal(cluster, pod(notes=CUSTOM))
    limited.tell(maxGPUs=0, namespaceSelector=term("NotIn", "default"))
    assert pod_refusal(cluster, pod()) == ""
    limited.tell(maxGPUs=0, priorityClassNames=["system-node-critical"])
    assert pod_refusal(cluster, pod()) == ""
    assert "maxGPUs" in pod_refusal(cluster, pod(priorityClassName="system-node-critical"))


def test_workers_of_a_job_that_was_let_in_are_made_under_narrower_limits(limited: Limited) -> None:
    limited.tell(maxGPUs=0)
    eventually(lambda: "maxGPUs" in pod_refusal(limited.cluster, pod()), "the policy of plain pods in force")
    owner = {"apiVersion": c.API_VERSION, "kind": c.JOB_KIND, "name": "j", "uid": "u", "controller": True}
    worker = pod("worker-under-limits", schedulingGates=[{"name": c.GATE}])
    worker["metadata"] |= {"labels": {c.LABEL_JOB_UID: "u"}, "ownerReferences": [owner]}
    answered = Account(limited.cluster, "operator").send("POST", "/api/v1/namespaces/default/pods", worker)
    assert (answered.code, answered.message) == (201, "")


def test_a_plain_pod_that_came_before_its_limits_is_held_to_them_by_the_extender(kompakt: ClusterSession, namespace: str) -> None:
    kompakt.core.create_namespaced_pod(namespace, pod(schedulingGates=[{"name": "example.com/later"}]))
    heard = apply(kompakt, namespace, job_of_nowhere("heard"))
    with later_limits(kompakt, namespace, maxGPUs=0) as name:
        eventually(lambda: scheduling(heard).get("reason") == "BeyondLimits", "the planner has heard of them")
        kompakt.core.patch_namespaced_pod("plain", namespace, [{"op": "remove", "path": "/spec/schedulingGates"}])
        words = f"this pod asks for 1 GPUs; Limits {name} of the cluster allow 0 (maxGPUs)"
        eventually(lambda: words in unscheduled(kompakt, namespace), "the extender's word")
    eventually(lambda: kompakt.core.read_namespaced_pod("plain", namespace).spec.node_name, "bound when they are gone")


def unscheduled(cluster: ClusterSession, namespace: str) -> str:
    """Why the plain pod is not bound."""
    conditions = cluster.core.read_namespaced_pod("plain", namespace).status.conditions or ()
    return " ".join(one.message or "" for one in conditions)


def test_a_job_that_is_there_may_be_touched_under_narrower_limits_and_not_grow(limited: Limited) -> None:
    cluster = limited.cluster
    cluster.custom.create_namespaced_custom_object(*JOBS, training_job("standing", replicas=2, suspend=True))
    try:
        limited.tell(maxWorkers=1)
        cluster.custom.patch_namespaced_custom_object(*JOBS, "standing", {"metadata": {"labels": {"a": "b"}}})
        with pytest.raises(ApiException, match="asks for 2 pods"):
            cluster.custom.patch_namespaced_custom_object(*JOBS, "standing", {"spec": {"suspend": False}})
    finally:
        cluster.custom.delete_namespaced_custom_object(*JOBS, "standing")


def job_of_nowhere(name: str) -> Object:
    """Two pods that fit no node."""
    job = training_job(name, replicas=2)
    job["spec"]["roles"][0]["template"]["spec"]["nodeSelector"] = {"absent": "true"}
    return job


@contextmanager
def later_limits(cluster: ClusterSession, namespace: str, **spec: Any) -> Iterator[str]:
    """Limits of one namespace, and their name."""
    name, here = f"later-{namespace}", {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    body = {"apiVersion": c.API_VERSION, "kind": c.LIMITS_KIND, "metadata": {"name": name}}
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps({**body, "spec": {"namespaceSelector": here, **spec}}))
    try:
        yield name
    finally:
        cluster.kubectl("delete", c.LIMITS_PLURAL, name)


def test_a_gang_that_waits_is_held_to_limits_that_come_later_by_the_planner(kompakt: ClusterSession, namespace: str) -> None:
    waits = apply(kompakt, namespace, job_of_nowhere("waits"))
    eventually(lambda: scheduling(waits).get("reason") == "NeverFits", "a gang that waits")
    with later_limits(kompakt, namespace, maxWorkers=1) as name:
        eventually(lambda: scheduling(waits)["reason"] == "BeyondLimits", "the planner's word")
        assert scheduling(waits)["message"] == f"this job asks for 2 pods; Limits {name} of the cluster allow 1 (maxWorkers)"
    eventually(lambda: scheduling(waits)["reason"] == "NeverFits", "planned again")


@LONG
def test_how_many_jobs_a_namespace_may_have_is_a_quotas_to_say(kompakt: ClusterSession, namespace: str) -> None:
    """Finished ones count until they are deleted. Kubernetes counts anew within five minutes, and most often at once."""
    key = f"count/{c.JOB_PLURAL}.{c.GROUP}"
    quota = {"metadata": {"name": "few"}, "spec": {"hard": {key: "2"}}}
    kompakt.core.create_namespaced_resource_quota(namespace, quota)

    def used() -> str:
        status = kompakt.core.read_namespaced_resource_quota("few", namespace).status
        return str((status.used or {}).get(key, ""))

    eventually(lambda: used() == "0", "the quota in force", RECOUNTED)
    over = apply(kompakt, namespace, training_job("over"))
    apply(kompakt, namespace, training_job("waits", suspend=True))
    over.await_phase("Succeeded")
    with pytest.raises(ApiException, match="exceeded quota: few"):
        apply(kompakt, namespace, training_job("more"))
    over.delete()
    eventually(lambda: used() == "1", "room for another", RECOUNTED)
    apply(kompakt, namespace, training_job("more"))


def test_how_long_a_job_may_not_be_preempted_cannot_grow_while_it_runs(guarded: ClusterSession) -> None:
    def told(**spec: Any) -> None:
        guarded.custom.patch_namespaced_custom_object(*JOBS, "growing", {"spec": spec})

    def lasting(seconds: int | None) -> Object:
        return {"preemption": {"minRuntimeSeconds": seconds}}

    guarded.custom.create_namespaced_custom_object(*JOBS, training_job("growing"))
    try:
        for seconds in (301, 31_622_400):  # it said nothing, which is 300
            with pytest.raises(ApiException, match="minRuntimeSeconds can grow only while suspended"):
                told(runPolicy=lasting(seconds))
        told(runPolicy=lasting(200))
        with pytest.raises(ApiException, match="minRuntimeSeconds can grow only while suspended"):
            told(runPolicy=None)  # 300 again
        told(suspend=True)
        told(runPolicy=lasting(900))
        told(suspend=False)
    finally:
        guarded.custom.delete_namespaced_custom_object(*JOBS, "growing")
