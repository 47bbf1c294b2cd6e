"""What the API server itself refuses of a TrainingJob, and the sentence a user then reads."""

import copy
from typing import Any

import pytest
from kubernetes.client import ApiException

from tests.support.examples import manifests
from tools.kube.jobs import training_job
from tools.kube.session import ClusterSession

GROUP = ("kompakt.dev", "v1alpha1")


def job() -> dict[str, Any]:
    """A job with every field that users are shown."""
    return training_job("job", replicas=2, gpus=2, activationCompression={"mode": "ErrorBounded", "targetGradientError": "0.01"})


def changed(path: str, value: Any) -> dict[str, Any]:
    """The job with one field set; None takes it away. A number in the path is a list index."""
    made = job()
    *above, last = [int(part) if part.isdigit() else part for part in path.split(".")]
    place: Any = made
    for part in above:
        place = place.setdefault(part, {}) if isinstance(place, dict) else place[part]
    if value is None:
        del place[last]
    else:
        place[last] = value
    return made


def refusal(cluster: ClusterSession, namespace: str, body: dict[str, Any]) -> str:
    """The API server's sentence."""
    with pytest.raises(ApiException) as refused:
        cluster.custom.create_namespaced_custom_object(*GROUP, namespace, "trainingjobs", body, dry_run="All")
    assert refused.value.status == 422
    return str(refused.value.body)


def test_a_job_with_the_shown_fields_is_taken(cluster: ClusterSession, namespace: str) -> None:
    made = cluster.custom.create_namespaced_custom_object(*GROUP, namespace, "trainingjobs", job(), dry_run="All")
    assert (made["spec"]["suspend"], made["spec"]["managedBy"]) == (False, "kompakt.dev/operator")


@pytest.mark.parametrize("name", manifests())
def test_a_job_of_the_examples_is_taken(cluster: ClusterSession, namespace: str, name: str) -> None:
    body = manifests()[name]
    cluster.custom.create_namespaced_custom_object(
        *GROUP, namespace, "trainingjobs", body, dry_run="All", field_validation="Strict"
    )


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("spec.communication.pattern", "Hexagon", "Hexagon"),
        ("spec.communication.pattern", "Custom", "customEdges and pattern Custom go together"),
        ("spec.communication.customEdges", {"scope": "Pod", "edges": [{"from": 0, "to": 7}]}, "go together"),
        (
            "spec.communication",
            {"pattern": "Custom", "customEdges": {"scope": "Gang", "edges": [{"from": 0, "to": 15}]}},
            "a rank that the gang does not have",
        ),
        ("spec.roles.0.replicas", 0, "replicas"),
        ("spec.roles.0.gpusPerReplica", -1, "gpusPerReplica"),
        ("spec.roles.0.gpusPerReplica", 0, "at least one role needs gpusPerReplica"),
        ("spec.roles.0.template.spec.containers", None, "containers"),
        ("spec.roles.0.name", "Worker", "role's name must be"),
        ("spec.roles", [], "roles"),
        ("spec.activationCompression.targetGradientError", "0.5", "at most 0.1"),
        ("spec.activationCompression.targetGradientError", "a lot", "decimal text"),
        ("spec.activationCompression.mode", "On", "mode"),
        ("spec.activationCompression.activationGradients", "Keep", "activationGradients"),
        ("spec.activationCompression", {"mode": "Lossless", "activationGradients": "Bounded"}, "Bounded needs mode ErrorBounded"),
        ("spec.activationCompression", {"activationGradients": "Bounded", "nonlinearInputs": "Keep"}, "contradict each other"),
        ("spec.activationCompression.nonlinearInputs", "Squeezed", "nonlinearInputs"),
        ("spec.activationCompression", {"mode": "Lossless", "nonlinearInputs": "Bounded"}, "Bounded needs mode ErrorBounded"),
        ("spec.activationCompression", {"mode": "None", "nonlinearInputs": "Bounded"}, "Bounded needs mode ErrorBounded"),
        ("spec.activationCompression.batchSize", "Raise", "baseBatchSize and batchSize Raise go together"),
        ("spec.activationCompression.baseBatchSize", 64, "baseBatchSize and batchSize Raise go together"),
        ("spec.activationCompression.maxBatchSize", 64, "maxBatchSize needs batchSize Raise"),
        ("spec.activationCompression", {"batchSize": "Raise", "baseBatchSize": 0}, "baseBatchSize"),
        ("spec.activationCompression", {"batchSize": "Raise", "baseBatchSize": 64, "maxBatchSize": 63}, "at least baseBatchSize"),
        ("spec.activationCompression.offload", "Always", "offload"),
        ("spec.activationCompression.memoryBudget", "20GiB", "memoryBudget is an amount above 0 such as 20Gi"),
        ("spec.activationCompression.memoryBudget", "1Gi\n", "memoryBudget is an amount above 0 such as 20Gi"),
        ("spec.activationCompression.memoryBudget", "0.5", "memoryBudget is an amount above 0 such as 20Gi"),
        ("spec.activationCompression.memoryBudget", "0%", "memoryBudget is an amount above 0 such as 20Gi"),
        ("spec.activationCompression.memoryBudget", "100.5%", "at most 100%"),
        ("spec.activationCompression", {"mode": "Lossless", "memoryBudget": "1Gi"}, "memoryBudget needs mode ErrorBounded"),
        ("spec.activationCompression", {"mode": "None", "offload": "Auto"}, "offload Auto needs a mode other than None"),
        ("spec.activationCompression", {"mode": "None", "batchSize": "Suggest"}, "batchSize needs a mode other than None"),
        ("spec.runPolicy.preemption.gracePeriodSeconds", 0, "gracePeriodSeconds"),
        ("spec.placement.policy", "Random", "Random"),
        ("spec.injection", "Never", "needs injection Default"),
        ("metadata.name", "a" * 41, "at most 40 characters"),
    ],
)
def test_an_impossible_request_is_refused_with_a_sentence(
    cluster: ClusterSession, namespace: str, path: str, value: Any, words: str
) -> None:
    assert words in refusal(cluster, namespace, changed(path, value))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("spec.activationCompression.batchSize", "Suggest"),
        ("spec.activationCompression.activationGradients", "Exact"),
        ("spec.activationCompression.nonlinearInputs", "Keep"),
        ("spec.activationCompression", {"mode": "Lossless", "activationGradients": "Exact", "nonlinearInputs": "Keep"}),
        ("spec.activationCompression.offload", "Auto"),
        ("spec.activationCompression.memoryBudget", "20Gi"),
        ("spec.activationCompression.memoryBudget", "0.5%"),
        ("spec.activationCompression.memoryBudget", "100%"),
        ("spec.runPolicy.preemption", {"gracePeriodSeconds": 45, "minRuntimeSeconds": 0}),
        ("spec.communication.gradientBytes", "102M"),
    ],
)
def test_what_is_honoured_is_taken_as_written(cluster: ClusterSession, namespace: str, path: str, value: Any) -> None:
    body = changed(path, value)
    made = cluster.custom.create_namespaced_custom_object(*GROUP, namespace, "trainingjobs", body, dry_run="All")
    place = made
    for part in path.split("."):
        place = place[part]
    # Of an object the definition fills in what was not said.
    assert ({name: place.get(name) for name in value} if isinstance(value, dict) else place) == value


def test_an_unknown_field_is_refused_under_strict_validation(cluster: ClusterSession, namespace: str) -> None:
    body = changed("spec.comunication", {"pattern": "Ring"})
    with pytest.raises(ApiException, match="comunication"):
        cluster.custom.create_namespaced_custom_object(
            *GROUP, namespace, "trainingjobs", body, dry_run="All", field_validation="Strict"
        )


def update(cluster: ClusterSession, namespace: str, body: dict[str, Any], **spec: Any) -> dict[str, Any]:
    made = copy.deepcopy(body)
    made["spec"] |= spec
    return dict(
        cluster.custom.replace_namespaced_custom_object(*GROUP, namespace, "trainingjobs", body["metadata"]["name"], made)
    )


def test_roles_change_only_while_suspended_and_who_manages_a_job_never(cluster: ClusterSession, namespace: str) -> None:
    body = changed("spec.managedBy", "example.com/somebody-else")
    stored = cluster.custom.create_namespaced_custom_object(*GROUP, namespace, "trainingjobs", body)
    with pytest.raises(ApiException, match="managedBy cannot change"):
        update(cluster, namespace, stored, managedBy="kompakt.dev/operator")
    more = copy.deepcopy(stored["spec"]["roles"])
    more[0]["replicas"] = 3
    with pytest.raises(ApiException, match="roles can change only while suspended"):
        update(cluster, namespace, stored, roles=more)
    suspended = update(cluster, namespace, stored, roles=more, suspend=True)
    assert suspended["spec"]["roles"][0]["replicas"] == 3
    assert update(cluster, namespace, suspended, suspend=False)["spec"]["suspend"] is False
