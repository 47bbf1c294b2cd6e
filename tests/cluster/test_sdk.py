"""`kompakt.TrainingJob` on the real API server with all our parts at work: from submit to delete. Pods are simulated."""

import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes.client import ApiException

from kompakt import InvalidInput, JobExists, JobFailed, JobNotFound, JobRefused, TrainingJob
from kompakt.models.spec import TrainingJobSpecDict
from tests.support.cluster.log_server import logs_of_pods
from tools.docs.blocks import CodeBlock, blocks_of
from tools.docs.repository import ROOT
from tools.kube.jobs import training_job
from tools.kube.kwok import EXIT_CODE_ANNOTATION, MESSAGE_ANNOTATION, SECONDS_ANNOTATION
from tools.kube.session import ClusterSession

REPORT = {"kompakt": 1, "ranks": 2, "active": True, "reason": "Active", "mode": "ErrorBounded", "target": "0.01", "steps": 9}
FIGURES = {"plainBytes": 1000, "savedBytes": 300, "denominator": "unique storages", "raw": {"TooSmall": 2}, "violations": 0}
Make = Callable[..., TrainingJob]


@pytest.fixture
def make(kompakt: ClusterSession, namespace: str) -> Make:
    """A job of simulated pods that is not submitted yet."""

    def made(name: str, **said: Any) -> TrainingJob:
        spec: TrainingJobSpecDict = training_job(name, **said)["spec"]
        return TrainingJob(name, spec=spec, namespace=namespace, kubeconfig=str(kompakt.kubeconfig))

    return made


@pytest.fixture
def printing(kompakt: ClusterSession) -> Iterator[None]:
    """Each simulated pod has printed its number, twice."""

    def printed(pod: str) -> str:
        rank = int(pod.split("-")[-2])
        return "".join(f"2026-01-31T12:00:0{2 * number + rank}.5Z {pod} says {number}\n" for number in range(2))

    with logs_of_pods(kompakt, printed):
        yield


def test_a_job_is_submitted_waited_for_and_deleted(make: Make) -> None:
    words = {MESSAGE_ANNOTATION: json.dumps({**REPORT, **FIGURES})}
    job = make("good", replicas=2, gpus=2, seconds="1", annotations=words, activationCompression={}).submit()
    told: list[str] = []
    status = job.wait(120, on_change=told.append)
    assert (status["phase"], status["attempt"], status["gpus"]) == ("Succeeded", 1, 4)
    assert "good: Succeeded (activations 3.33 times smaller)" in told
    report = job.report()
    assert report is not None
    assert (report["plainBytes"], report["ratio"]) == (2000, "3.33")
    assert job.status()["conditions"]
    job.delete(wait=True)
    with pytest.raises(JobNotFound, match='"good" not found'):
        job.status()
    job.delete()  # nothing left to do


def test_lines_of_all_workers_come_by_time_with_their_ranks(make: Make, printing: None) -> None:
    job = make("talks", replicas=2, gpus=1, seconds="3").submit()
    followed = [(line.rank, line.text) for line in job.logs(follow=True)]
    assert sorted(followed) == [(rank, f"talks-worker-{rank}-a1 says {number}") for rank in (0, 1) for number in (0, 1)]
    assert job.wait(60)["phase"] == "Succeeded"
    lines = list(job.logs())
    assert [(line.rank, line.text[-1]) for line in lines] == [(0, "0"), (1, "0"), (0, "1"), (1, "1")]
    assert [str(line) for line in job.logs(ranks={1})] == [f"[worker-1] talks-worker-1-a1 says {number}" for number in (0, 1)]


def test_a_failed_job_says_why(make: Make) -> None:
    job = make("bad", seconds="0.5", annotations={EXIT_CODE_ANNOTATION: "3"}, runPolicy={"backoffLimit": 0}).submit()
    with pytest.raises(JobFailed, match=r"^bad: Failed \(BackoffLimitExceeded: .*exit code 3") as caught:
        job.wait(120)
    assert caught.value.job_status["phase"] == "Failed"


def test_a_job_that_waits_says_what_for_and_outlasts_a_timeout(make: Make) -> None:
    job = make("large", gpus=2, replicas=99).submit()
    with pytest.raises(TimeoutError, match=r"^large: Pending \(.+\): not over after 10 s; it goes on$"):
        job.wait(10)
    assert job.status()["phase"] == "Pending"
    with pytest.raises(InvalidInput, match="no worker has begun to run"):
        list(job.logs())
    job.delete(wait=True)


def test_what_is_refused_says_what_is_wrong_and_nothing_is_made(make: Make, kompakt: ClusterSession) -> None:
    job = make("tried").submit(dry_run=True)
    with pytest.raises(JobNotFound):
        TrainingJob.get("tried", job.namespace, kubeconfig=str(kompakt.kubeconfig))
    with pytest.raises(InvalidInput, match=r"TrainingJob typo: .*communicaton: unknown field"):
        make("typo", communicaton={}).submit()
    absent = TrainingJob("x", "i", namespace="absent", kubeconfig=str(kompakt.kubeconfig))
    with pytest.raises(JobRefused, match='namespaces "absent" not found'):
        absent.submit()


def test_a_name_that_is_taken_is_an_error_and_the_job_there_stays(make: Make, kompakt: ClusterSession) -> None:
    first = make("taken", suspend=True).submit()
    with pytest.raises(JobExists, match=f"there is a TrainingJob taken in namespace {first.namespace}"):
        make("taken").submit()
    (found,) = TrainingJob.list(first.namespace, kubeconfig=str(kompakt.kubeconfig))
    assert (found.name, found.status().get("phase", "")) in (("taken", ""), ("taken", "Suspended"))
    found.delete(wait=True)
    again = make("taken", suspend=True).submit()
    with pytest.raises(JobNotFound, match="another one made under its name"):
        first.status()
    first.delete()
    assert again.status()


@contextmanager
def until_stopped(act: Callable[[], None]) -> Iterator[None]:
    """Meanwhile `act` is called once a second."""
    stopped = threading.Event()

    def repeat() -> None:
        while not stopped.wait(1):
            with suppress(ApiException):  # a pod that is gone
                act()

    thread = threading.Thread(target=repeat)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()


def ending(kompakt: ClusterSession, namespace: str) -> None:
    """Let each pod that runs leave figures and end."""
    for pod in kompakt.core.list_namespaced_pod(namespace).items:
        notes = {SECONDS_ANNOTATION: "1", MESSAGE_ANNOTATION: json.dumps({**REPORT, **FIGURES})}
        kompakt.core.patch_namespaced_pod(pod.metadata.name, namespace, {"metadata": {"annotations": notes}})


def test_the_page_shows_what_happens(
    kompakt: ClusterSession, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """All Python blocks of docs/sdk.md, one after the other, as the cells of a notebook; the job's pods end after a while."""
    document = yaml.safe_load(kompakt.kubeconfig.read_text())
    document["contexts"][0]["context"]["namespace"] = namespace
    (tmp_path / "config").write_text(yaml.safe_dump(document))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    blocks = list(blocks_of("docs/sdk.md", (ROOT / "docs/sdk.md").read_text()))
    names: dict[str, Any] = {}
    printed = "2026-01-31T12:00:01Z test accuracy 98.15 %\n"
    with logs_of_pods(kompakt, lambda pod: printed), until_stopped(lambda: ending(kompakt, namespace)):
        for block, after in pairwise([*blocks, CodeBlock("", 0, "", "")]):
            if block.language == "python":
                exec(compile(block.text, f"{block.page}:{block.line}", "exec"), names)
                said = capsys.readouterr().out
                wanted = after.text.replace("team-a", namespace) if after.language == "text" else ""
                assert re.fullmatch(re.escape(wanted).replace(re.escape("...\n"), "(?:.*\n)*"), said), said
    assert sum(block.language == "python" for block in blocks) >= 8
