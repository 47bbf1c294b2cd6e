"""batchSize Raise on a real API server: measuring attempts, then one with what fits."""

import json
from functools import partial
from typing import Any

from tools.kube.jobs import JobManifest, apply, training_job
from tools.kube.session import ClusterSession, eventually

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


def variables(pod: Any) -> dict[str, str]:
    return {variable.name: variable.value for variable in pod.spec.containers[0].env}


def test_the_batch_is_measured_until_it_grows_little_and_then_kept(kompakt: ClusterSession, namespace: str) -> None:
    """Half as much again is more than a quarter, so the second attempt measures too; the third has maxBatchSize."""
    message = {"simulate.kompakt.dev/message": json.dumps({**MEASURED, "suggestedBatch": 24})}
    raised = {"batchSize": "Raise", "baseBatchSize": 64, "maxBatchSize": 100}
    body = training_job("raised", replicas=2, seconds="2", annotations=message, activationCompression=raised)
    body["spec"]["roles"][0]["template"]["spec"]["containers"][0] |= {
        "args": ["--batch=$(KOMPAKT_BATCH_SIZE)"],
        "env": [{"name": "TWICE", "value": "$(KOMPAKT_BATCH_SIZE)"}],
    }
    job, told = apply(kompakt, namespace, body), []
    for attempt in ("-a1", "-a2", "-a3"):
        pods = eventually(partial(pods_of, job, attempt), f"pods {attempt}")
        told.append({(variables(pod)["KOMPAKT_BATCH"], variables(pod)["KOMPAKT_BATCH_SIZE"]) for pod in pods})
        assert list(variables(pods[0])).index("KOMPAKT_BATCH_SIZE") < list(variables(pods[0])).index("TWICE")
        if attempt == "-a1":
            assert (job.status["batch"]["state"], job.status["batch"]["size"]) == ("Measuring", 64)
    assert told == [{("Measure", "64")}, {("Measure", "96")}, {("Raise", "100")}]

    status = job.await_phase("Succeeded")
    assert (status["attempt"], status["restarts"], status["lastRestart"]["reason"]) == (3, 0, "BatchMeasured")
    assert status["batch"] | {"spec": ""} == {"state": "Raised", "size": 100, "base": 64, "spec": "", "rounds": 2}
    heading, row = kompakt.kubectl("get", "trainingjob", job.name, "-n", namespace, "-o", "wide").splitlines()[:2]
    assert row[heading.index("BATCH") :].split()[0] == "100"


def pods_of(job: JobManifest, attempt: str) -> list[Any]:
    return [pod for pod in job.pods() if pod.metadata.name.endswith(attempt)]
