"""batchSize Raise on a real API server: a measuring attempt, then one with what fits; a clash is told."""

import json
from typing import Any

from tools.kube.jobs import JobManifest, training_job
from tools.kube.session import ClusterSession, eventually

RAISE = {"batchSize": "Raise", "baseBatchSize": 64}
# As the runtime writes it; a simulated pod says the same in every attempt, a real one only while it is told to measure.
MEASURED = {
    "kompakt": 1,
    "ranks": 1,
    "active": True,
    "reason": "Active",
    "mode": "ErrorBounded",
    "batchMeasured": True,
    "batch": 16,
}


def applied(kompakt: ClusterSession, namespace: str, body: dict[str, Any]) -> JobManifest:
    kompakt.kubectl("apply", "-n", namespace, "-f", "-", stdin=json.dumps(body))
    return JobManifest(kompakt, namespace, body["metadata"]["name"])


def variables(pod: Any) -> dict[str, str]:
    return {variable.name: variable.value for variable in pod.spec.containers[0].env}


def test_the_second_attempt_has_the_batch_that_the_first_one_measured(kompakt: ClusterSession, namespace: str) -> None:
    message = {"simulate.kompakt.dev/message": json.dumps({**MEASURED, "suggestedBatch": 19})}
    body = training_job("raised", replicas=2, seconds="2", annotations=message, activationCompression=RAISE)
    body["spec"]["roles"][0]["template"]["spec"]["containers"][0] |= {
        "args": ["--batch=$(KOMPAKT_BATCH_SIZE)"],
        "env": [{"name": "TWICE", "value": "$(KOMPAKT_BATCH_SIZE)"}],
    }
    job = applied(kompakt, namespace, body)
    eventually(job.pods, "pods of the first attempt")
    first = {k: v for k, v in variables(job.pods()[0]).items() if k.startswith("KOMPAKT_BATCH")}
    assert first == {"KOMPAKT_BATCH": "Measure", "KOMPAKT_BATCH_SIZE": "64"}
    assert (job.status["batch"]["state"], job.status["batch"]["size"]) == ("Measuring", 64)

    eventually(lambda: any(pod.metadata.name.endswith("-a2") for pod in job.pods()), "pods of the second attempt")
    pods = [pod for pod in job.pods() if pod.metadata.name.endswith("-a2")]
    assert {variables(pod)["KOMPAKT_BATCH_SIZE"] for pod in pods} == {"76"}
    assert {variables(pod)["KOMPAKT_BATCH"] for pod in pods} == {"Raise"}
    order = [variable.name for variable in pods[0].spec.containers[0].env]
    assert order.index("KOMPAKT_BATCH_SIZE") < order.index("TWICE")

    status = job.await_phase("Succeeded")
    assert (status["attempt"], status["restarts"], status["batch"]["state"]) == (2, 0, "Raised")
    assert (status["batch"]["size"], status["batch"]["base"]) == (76, 64)
    assert status["lastRestart"]["reason"] == "BatchMeasured"
    shown = kompakt.kubectl("get", "trainingjob", job.name, "-n", namespace, "-o", "wide")
    heading, row = shown.splitlines()[:2]
    assert row[heading.index("BATCH") :].split()[0] == "76"


def test_a_batch_that_grew_much_is_measured_again_before_it_is_kept(kompakt: ClusterSession, namespace: str) -> None:
    """Half as much again is more than a quarter, so the second attempt measures too; the third has maxBatchSize."""
    message = {"simulate.kompakt.dev/message": json.dumps({**MEASURED, "suggestedBatch": 24})}
    body = training_job("again", seconds="2", annotations=message, activationCompression={**RAISE, "maxBatchSize": 100})
    job = applied(kompakt, namespace, body)
    told = {}
    for attempt in (1, 2, 3):
        ending = f"-a{attempt}"
        eventually(lambda ending=ending: any(pod.metadata.name.endswith(ending) for pod in job.pods()), f"pods{ending}")  # type: ignore[misc]
        pod = next(pod for pod in job.pods() if pod.metadata.name.endswith(ending))
        told[attempt] = (variables(pod)["KOMPAKT_BATCH"], variables(pod)["KOMPAKT_BATCH_SIZE"])
    assert told == {1: ("Measure", "64"), 2: ("Measure", "96"), 3: ("Raise", "100")}

    status = job.await_phase("Succeeded")
    assert (status["attempt"], status["restarts"]) == (3, 0)
    assert status["batch"] | {"spec": ""} == {"state": "Raised", "size": 100, "base": 64, "spec": "", "rounds": 2}


def test_a_batch_size_of_the_template_becomes_a_condition(kompakt: ClusterSession, namespace: str) -> None:
    body = training_job("clash", activationCompression=RAISE)
    body["spec"]["roles"][0]["template"]["spec"]["containers"][0]["env"] = [{"name": "KOMPAKT_BATCH_SIZE", "value": "8"}]
    job = applied(kompakt, namespace, body)
    eventually(lambda: job.condition("Failed").get("status") == "True", "Failed")
    assert job.condition("Failed")["reason"] == "InvalidTemplate"
    assert "KOMPAKT_BATCH_SIZE is written by kompakt" in job.condition("Failed")["message"]
