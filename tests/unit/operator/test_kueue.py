"""How Workloads of Kueue are read, and what an admission adds to pods."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kompakt_core import contract as c
from kompakt_core.job.workload import PodSet, WorkloadState
from kompakt_operator import kueue
from kompakt_operator.kueue import PodSetUpdate
from tests.support.core.job_world import make_job
from tests.support.operator.known import encoded

Object = dict[str, Any]
GPUS = {"name": "trainer", "image": "i", "resources": {"limits": {c.RESOURCE: "2"}, "requests": {c.RESOURCE: "2"}}}
NOW = "2026-01-01T00:00:00Z"


def workload(*conditions: tuple[str, str, str], **spec: Any) -> Object:
    """With conditions as type, status and message."""
    told = [{"type": type_, "status": status, "reason": "Why", "message": words} for type_, status, words in conditions]
    sets = [{"name": "worker", "count": 2, "template": {"spec": {"containers": [GPUS]}}}]
    return {
        "metadata": {"resourceVersion": "7"},
        "spec": {"queueName": "team-a", "podSets": sets, **spec},
        "status": {"conditions": told, "admission": {"clusterQueue": "all"}},
    }


RESERVED, ADMITTED, EVICTED = ("QuotaReserved", "True", "has"), ("Admitted", "True", "is"), ("Evicted", "True", "preempted")
NO_QUOTA = ("QuotaReserved", "False", "insufficient quota")


@pytest.mark.parametrize(
    ("conditions", "state", "message"),
    [
        ((), WorkloadState.PENDING, ""),
        ((NO_QUOTA,), WorkloadState.PENDING, "insufficient quota"),
        ((RESERVED, ("Admitted", "False", "no check is ready")), WorkloadState.PENDING, "no check is ready"),
        ((RESERVED, ADMITTED), WorkloadState.ADMITTED, ""),
        ((RESERVED, ADMITTED, ("Evicted", "False", "quota again")), WorkloadState.ADMITTED, ""),
        ((RESERVED, ADMITTED, EVICTED), WorkloadState.EVICTED, "preempted"),
        ((NO_QUOTA, EVICTED), WorkloadState.PENDING, "preempted"),
    ],
)
def test_what_conditions_say(conditions: Any, state: WorkloadState, message: str) -> None:
    found = kueue.workload_of(workload(*conditions))
    assert (found.state, found.message, found.queue, found.pod_sets) == (state, message, "team-a", {"worker": PodSet(2, 2)})


def test_an_admission_check_that_is_not_ready_is_named() -> None:
    found = workload(RESERVED)
    checks = [{"name": "a", "state": "Ready", "message": "yes"}, {"name": "nodes", "state": "Pending", "message": ""}]
    found["status"]["admissionChecks"] = checks
    assert kueue.workload_of(found).message == "admission check nodes is Pending"


def test_one_that_somebody_made_inactive_says_so() -> None:
    assert "spec.active is false" in kueue.workload_of(workload(RESERVED, active=False)).message


def test_quota_is_given_back_once_with_all_other_conditions_kept() -> None:
    before = workload(RESERVED, ADMITTED, EVICTED, ("PodsReady", "True", "all"), ("Else", "True", "kept"))
    patch = kueue.without_quota(before, NOW)
    assert patch is not None
    assert (patch["metadata"], patch["status"]["admission"]) == ({"resourceVersion": "7"}, None)
    told = {one["type"]: (one["status"], one["message"]) for one in patch["status"]["conditions"]}
    assert told["QuotaReserved"] == ("False", "preempted")
    assert (told["Admitted"][0], told["PodsReady"][0], told["Evicted"][0], told["Else"]) == (
        "False",
        "False",
        "True",
        ("True", "kept"),
    )
    assert kueue.without_quota({**before, "status": patch["status"]}, NOW) is None
    assert kueue.without_quota(workload(RESERVED, ADMITTED), NOW) is None


@pytest.mark.parametrize(("reason", "again"), [("Preempted", "True"), ("PodsReadyTimeout", "False")])
def test_a_preempted_one_is_in_the_queue_again_at_once(reason: str, again: str) -> None:
    before = workload(RESERVED, EVICTED)
    before["status"]["conditions"][1]["reason"] = reason
    patch = kueue.without_quota(before, NOW)
    assert patch is not None
    (requeued,) = [one for one in patch["status"]["conditions"] if one["type"] == "Requeued"]
    assert (requeued["status"], requeued["reason"]) == (again, reason)


def test_pods_get_labels_and_tolerations_of_their_flavors_and_what_admission_checks_add() -> None:
    found = workload(RESERVED, ADMITTED)
    found["status"]["admission"] = {
        "podSetAssignments": [{"name": "worker", "flavors": {c.RESOURCE: "spot", "cpu": "default", "memory": "default"}}]
    }
    found["status"]["admissionChecks"] = [
        {
            "name": "capacity",
            "podSetUpdates": [
                {"name": "worker", "annotations": {"a": "b", c.ANN_GPUS: "GPU-1"}, "labels": {"l": "m", c.LABEL_GANG: "g"}},
                {"name": "ps"},
            ],
        }
    ]
    assert kueue.flavors_of(found) == {"worker": ("spot", "default")}
    taint = {"key": "spot", "operator": "Exists"}
    update = kueue.update_of("worker", found, [{"spec": {"nodeLabels": {"pool": "spot"}, "tolerations": [taint]}}, {"spec": {}}])
    assert update == PodSetUpdate({"l": "m"}, {"a": "b"}, {"pool": "spot"}, (taint,))
    pod = {
        "metadata": {"labels": {"l": "ours"}, "annotations": {}},
        "spec": {"nodeSelector": {"zone": "z"}, "tolerations": [{"key": "k"}]},
    }
    made = kueue.admitted(pod, update)
    assert made["metadata"] == {"labels": {"l": "ours"}, "annotations": {"a": "b"}}
    assert made["spec"] == {"nodeSelector": {"zone": "z", "pool": "spot"}, "tolerations": [{"key": "k"}, taint]}
    assert kueue.admitted(pod, PodSetUpdate()) == pod


def test_a_workload_asks_for_one_pod_set_of_each_role_with_the_pods_priority() -> None:
    roles = [{"name": "ps", "replicas": 1, "gpusPerReplica": 0}, {"name": "worker", "replicas": 2, "gpusPerReplica": 2}]
    job = make_job(roles=roles)
    ps = {"spec": {"containers": [{"name": "trainer", "image": "i", "env": [{"name": "A", "value": "b"}]}]}}
    pods = {"ps": ps, "worker": {"spec": {"containers": [GPUS], "initContainers": [{"name": "copy", "image": "r"}]}}}
    made = kueue.workload(job, "team-a", pods, kueue.WorkloadPriority(7, "high", "scheduling.k8s.io/priorityclass"))
    assert made["metadata"]["name"] == "trainingjob-j-u"
    assert made["metadata"]["ownerReferences"][0]["controller"]
    spec = made["spec"]
    assert (spec["priority"], spec["priorityClassName"], spec["queueName"]) == (7, "high", "team-a")
    assert [one["template"]["spec"]["containers"] for one in spec["podSets"]] == [[{"name": "trainer", "image": "i"}], [GPUS]]
    assert spec["podSets"][1]["template"]["spec"]["initContainers"] == [{"name": "copy", "image": "r"}]
    assert kueue.workload_of(made).pod_sets == {"ps": PodSet(1, 0), "worker": PodSet(2, 2)}


@pytest.mark.parametrize(
    ("meta", "seen"),
    [({}, True), ({"name": "another"}, False), ({"ownerReferences": []}, False)],
)
def test_only_the_workload_that_the_operator_made_counts(meta: Object, seen: bool) -> None:
    made = kueue.workload(make_job(), "team-a", {"worker": {"spec": {"containers": [GPUS]}}}, kueue.WorkloadPriority(0))
    made["metadata"] |= {"uid": "w", "resourceVersion": "1", **meta}
    assert (kueue.read_workload(encoded(made)) is not None) == seen


def test_a_deleted_workload_names_who_keeps_it() -> None:
    found = workload(RESERVED, ADMITTED)
    found["metadata"] = {"deletionTimestamp": NOW, "finalizers": ["example.com/audit", "example.com/cost"]}
    read = kueue.workload_of(found)
    assert read.state is WorkloadState.DELETED
    assert read.message.endswith("finalizers example.com/audit, example.com/cost")


@given(st.text(max_size=300), st.text(max_size=12))
def test_names_and_words_of_any_kind_are_read(words: str, amount: str) -> None:
    found = workload(("QuotaReserved", "False", words))
    found["spec"]["podSets"][0]["template"]["spec"]["containers"] = [{"resources": {"limits": {c.RESOURCE: amount}}}]
    assert kueue.workload_of(found).message == words
