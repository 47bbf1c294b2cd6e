"""status.progress and status.compression on a real API server: what rank 0's own page says while it runs, and what stays."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from kompakt_core.contract import ANN_SENSITIVITY, METRICS_PORT
from kompakt_runtime.config import RuntimeConfig
from kompakt_runtime.figures import export, metrics
from kompakt_runtime.figures.counted import Figures
from kompakt_runtime.figures.pace import StepCounter
from tests.support.cluster.replacing import operator_instead
from tools.kube.jobs import JobManifest, apply, training_job
from tools.kube.session import ClusterSession, eventually, stays

LAST_WORD = {"kompakt": 1, "active": False, "reason": "ModeNone", "progress": {"step": 1000, "total": 1000, "loss": 0.25}}


@pytest.fixture(scope="module")
def asking(kompakt: ClusterSession) -> Iterator[ClusterSession]:
    """The cluster with an operator that asks once a second."""
    with operator_instead(kompakt, kompakt.parts.operator("operator-1", "--progress-seconds=1")):
        yield kompakt


class Steady(StepCounter):
    """Steps as of a VGG: half a gigabyte of gradients every quarter of a second."""

    def said(self) -> dict[str, object]:
        return {"stepSeconds": 0.25, "gradientBytes": 531_400_000, "ranks": 4}


@pytest.fixture
def file(tmp_path: Path) -> Iterator[Path]:
    """A progress file that the runtime serves on the port of a worker, from this machine's loopback address."""
    path = tmp_path / "progress.json"
    config = RuntimeConfig("ErrorBounded", progress_file=str(path), metrics_port=METRICS_PORT, state_dir=str(tmp_path))
    server = metrics.serve(config, Steady())
    assert server is not None, f"another program listens on port {METRICS_PORT}"
    yield path
    server.shutdown()
    server.server_close()


def led_here(job: JobManifest) -> None:
    """A simulated pod has an address that leads nowhere; that of rank 0 leads to the page above once the job runs."""
    job.await_phase("Running")
    address = {"podIP": "127.0.0.1", "podIPs": [{"ip": "127.0.0.1"}]}
    local = [{"op": "replace", "path": f"/status/{field}", "value": value} for field, value in address.items()]
    job.cluster.core.patch_namespaced_pod_status(f"{job.name}-worker-0-a1", job.namespace, local)


def test_progress_and_profile_reach_the_status_and_the_next_attempt_and_the_last_word_stays(
    asking: ClusterSession, namespace: str, file: Path
) -> None:
    message = {"simulate.kompakt.dev/message": json.dumps(LAST_WORD)}
    made = training_job("told", replicas=2, gpus=2, seconds=None, annotations=message, injection="Always")
    made["spec"]["communication"] = {"pattern": "Ring", "gradientBytes": "531M"}
    job = apply(asking, namespace, made)
    led_here(job)
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

    job.patch({"spec": {"suspend": True}})
    job.await_phase("Suspended")
    eventually(lambda: not job.pods(), "no pods")
    left = job.status["progress"]["remainingSeconds"]
    assert left > 0
    assert "eta" not in job.status["progress"]
    assert job.status["profile"] == profile
    job.patch({"spec": {"suspend": False}})
    eventually(lambda: len(job.pods()) == 2, "the next attempt")
    assert {pod.metadata.annotations[ANN_SENSITIVITY] for pod in job.pods()} == {"High"}
    assert job.status["progress"] == {"remainingSeconds": left}

    job.await_phase("Running")
    job.finish()
    assert job.await_phase("Succeeded")["progress"] == {"step": 1000, "total": 1000, "loss": "0.25"}
    assert job.status["profile"] == profile


def test_compression_shows_while_the_job_runs_and_stays_where_no_worker_leaves_a_word(
    asking: ClusterSession, namespace: str, file: Path
) -> None:
    def trained(plain: int, saved: int) -> None:
        figures = Figures(plain_bytes=plain, saved_bytes=saved, forwards=9, steps=9, compressed=1)
        export.write_report(str(file.parent), 1, export.report(figures))

    def shown() -> dict[str, object]:
        status = job.status
        return {"phase": status["phase"], **status.get("compression", {})}

    made = training_job("saving", replicas=2, gpus=2, seconds=None)
    made["spec"]["activationCompression"] = {"mode": "ErrorBounded"}
    job = apply(asking, namespace, made)
    led_here(job)
    trained(700_000, 100_000)
    eventually(lambda: shown().get("ratio") == "7.00", "the first figures")
    assert {"phase": "Running", "ranks": 1, "attempt": 1, "complete": False, "active": True}.items() <= shown().items()
    assert job.condition("CompressionActive")["status"] == "True"
    titles, row = (line.split() for line in asking.kubectl("get", "tj", "saving", "-n", namespace).splitlines())
    assert dict(zip(titles, row, strict=True))["RATIO"] == "7.00"
    trained(7_010_000, 1_000_000)
    stays(lambda: shown()["plainBytes"], rounds=3)
    trained(9_000_000, 1_000_000)
    eventually(lambda: shown()["ratio"] == "9.00", "a ratio that changed")
    job.finish()
    job.await_phase("Succeeded")
    assert {"ratio": "9.00", "complete": False, "ranks": 1}.items() <= shown().items()
