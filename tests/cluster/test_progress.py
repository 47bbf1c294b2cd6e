"""status.progress on a real API server: what rank 0's own page says while it runs, its last word afterwards."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from kompakt_core.contract import ANN_SENSITIVITY, METRICS_PORT
from kompakt_runtime import metrics
from kompakt_runtime.config import Config
from kompakt_runtime.pace import Pace
from tools.kube.jobs import apply, training_job
from tools.kube.session import Cluster, eventually

LAST_WORD = {"kompakt": 1, "active": False, "reason": "ModeNone", "progress": {"step": 1000, "total": 1000, "loss": 0.25}}


@pytest.fixture
def asking(kompakt: Cluster) -> Iterator[Cluster]:
    """The cluster with an operator that asks once a second."""
    kompakt.kill("operator-0")
    kompakt.start(kompakt.parts.operator("operator-0", "--progress-seconds=1"))
    yield kompakt
    kompakt.kill("operator-0")
    kompakt.start(kompakt.parts.operator("operator-0"))


class Steady(Pace):
    """Steps as of a VGG: half a gigabyte of gradients every quarter of a second."""

    def said(self) -> dict[str, object]:
        return {"stepSeconds": 0.25, "gradientBytes": 531_400_000, "ranks": 4}


@pytest.fixture
def file(tmp_path: Path) -> Iterator[Path]:
    """A progress file that the runtime serves on the port of a worker, from this machine's loopback address."""
    path = tmp_path / "progress.json"
    server = metrics.serve(Config(progress_file=str(path), metrics_port=METRICS_PORT), Steady())
    assert server is not None, f"another program listens on port {METRICS_PORT}"
    yield path
    server.shutdown()
    server.server_close()


def test_progress_reaches_the_status_and_its_last_word_stays(asking: Cluster, namespace: str, file: Path) -> None:
    message = {"simulate.kompakt.dev/message": json.dumps(LAST_WORD)}
    made = training_job("told", replicas=2, gpus=2, seconds=None, annotations=message)
    made["spec"]["communication"] = {"pattern": "Ring", "gradientBytes": "531M"}
    job = apply(asking, namespace, made)
    # A simulated pod has an address that leads nowhere; this one leads to the page above.
    eventually(lambda: len(job.bound()) == 2, "both bound")
    address = {"podIP": "127.0.0.1", "podIPs": [{"ip": "127.0.0.1"}]}
    local = [{"op": "replace", "path": f"/status/{field}", "value": value} for field, value in address.items()]
    job.await_phase("Running")
    asking.core.patch_namespaced_pod_status("told-worker-0-a1", namespace, local)
    file.write_text('{"step": 10, "total": 1000, "loss": 2.5, "samplesPerSecond": 80}')
    eventually(lambda: job.status.get("progress", {}).get("step") == 10, "the first word")
    file.write_text('{"step": 20, "total": 1000, "loss": 2.25, "samplesPerSecond": 80}')
    eventually(lambda: "eta" in job.status.get("progress", {}), "two steps give an estimate")
    said = job.status["progress"]
    assert {**said, "eta": ""} == {"step": 20, "total": 1000, "loss": "2.25", "samplesPerSecond": "80", "eta": ""}
    assert said["eta"] > job.status["startTime"]
    profile = job.status["profile"]
    assert profile == {
        "source": "Steps",
        "stepSeconds": "0.25",
        "gradientBytes": 531_000_000,
        "ranks": 4,
        "level": "Machine",
        "communication": "0.26",
        "sensitivity": "High",
    }
    job.finish()
    assert job.await_phase("Succeeded")["progress"] == {"step": 1000, "total": 1000, "loss": "0.25"}
    assert job.status["profile"] == profile


def test_after_a_suspension_pods_carry_the_measured_word_and_the_status_what_was_left(
    asking: Cluster, namespace: str, file: Path
) -> None:
    made = training_job("learned", replicas=2, gpus=2, seconds=None)
    made["spec"]["communication"] = {"pattern": "Ring"}
    job = apply(asking, namespace, made)
    job.await_phase("Running")
    local = [{"op": "replace", "path": "/status/podIP", "value": "127.0.0.1"}]
    local.append({"op": "replace", "path": "/status/podIPs", "value": [{"ip": "127.0.0.1"}]})
    asking.core.patch_namespaced_pod_status("learned-worker-0-a1", namespace, local)
    eventually(lambda: job.status.get("profile", {}).get("sensitivity") == "High", "measured")
    file.write_text('{"step": 10, "total": 100000}')
    eventually(lambda: job.status.get("progress", {}).get("step") == 10, "the first word")
    file.write_text('{"step": 20, "total": 100000}')
    eventually(lambda: "eta" in job.status.get("progress", {}), "two steps give an estimate")
    job.patch({"spec": {"suspend": True}})
    job.await_phase("Suspended")
    eventually(lambda: not job.pods(), "no pods")
    left = job.status["progress"]["remainingSeconds"]
    assert left > 0
    assert "eta" not in job.status["progress"]
    assert job.status["profile"]["sensitivity"] == "High"
    job.patch({"spec": {"suspend": False}})
    eventually(lambda: len(job.pods()) == 2, "the next attempt")
    assert {pod.metadata.annotations[ANN_SENSITIVITY] for pod in job.pods()} == {"High"}
    assert job.status["progress"] == {"remainingSeconds": left}
    job.delete()
