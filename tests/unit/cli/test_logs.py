"""`kompakt logs`: lines of all workers by time, nothing twice and nothing lost where a connection breaks."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from kompakt import following
from kompakt_cli import main
from kompakt_core.contract import job_owner, worker_labels
from kompakt_core.contract.job_owner import JobOwner
from kompakt_core.contract.worker_labels import AttemptLabels, WorkerLabels
from kompakt_core.errors import InvalidInput
from tests.support.cli.scripted_api import Cut, Script, scripted_api

JOB = "/apis/kompakt.dev/v1alpha1/namespaces/ml/trainingjobs/train"
PODS = "/api/v1/namespaces/ml/pods"
OWNER = JobOwner("ml", "train", "u")
Run = Callable[..., Result]


def job(phase: str = "Running", attempt: int = 1, replicas: int = 2) -> tuple[int, Any]:
    spec = {"roles": [{"name": "worker", "replicas": replicas, "gpusPerReplica": 1}]}
    meta = {"name": "train", "namespace": "ml", "uid": "u"}
    return 200, {"metadata": meta, "spec": spec, "status": {"phase": phase, "attempt": attempt}}


def pod(index: int, state: str = "running", attempt: int = 1, owner: JobOwner = OWNER) -> dict[str, Any]:
    labels = worker_labels.encode(WorkerLabels(AttemptLabels("train", owner.uid, attempt), "worker", index))
    name = f"train-worker-{index}-a{attempt}"
    meta = {"name": name, "namespace": "ml", "uid": f"{name}-{owner.uid}", "labels": labels}
    statuses = [{"name": "trainer", "state": {state: {}}}]
    containers = [{"name": "helper"}, {"name": "trainer", "resources": {"limits": {"kompakt.dev/gpu": 1}}}]
    references = [job_owner.encode(owner)]
    return {
        "metadata": meta | {"ownerReferences": references},
        "spec": {"containers": containers},
        "status": {"containerStatuses": statuses},
    }


def log(index: int, attempt: int = 1) -> str:
    return f"{PODS}/train-worker-{index}-a{attempt}/log"


def at(second: int, text: str) -> str:
    return f"2026-01-31T12:00:{second:02}.000000000Z {text}\n"


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Script, Run]]:
    monkeypatch.setattr(following, "PAUSE_SECONDS", 0.01)
    with scripted_api(tmp_path) as (script, path):
        yield script, lambda *words: CliRunner().invoke(main.application(), ["logs", "train", *words, "--kubeconfig", path])


def two_workers(script: Script) -> None:
    script.answers |= {
        ("GET", JOB): job(),
        ("GET", PODS): (200, {"items": [pod(1), pod(0), pod(0, owner=JobOwner("ml", "train", "forged"))]}),
        ("GET", log(0)): (200, at(1, "a") + at(3, "c")),
        ("GET", log(1)): (200, at(2, "b") + at(3, "d") + "2026-01-31T12:00:04Z no end"),
    }


def test_lines_are_merged_by_time_and_name_their_worker(server: tuple[Script, Run]) -> None:
    script, run = server
    two_workers(script)
    assert run().output.splitlines() == ["[worker-0] a", "[worker-1] b", "[worker-0] c", "[worker-1] d", "[worker-1] no end"]
    assert all(query["container"] == ["trainer"] for query in script.queries_of(log(0)))


def test_ranks_tail_prefix_and_timestamps(server: tuple[Script, Run]) -> None:
    script, run = server
    two_workers(script)
    assert run("--ranks", "1", "--tail", "2", "--no-prefix", "--timestamps").output.splitlines()[0].endswith("00Z b")
    assert script.queries_of(log(1))[0]["tailLines"] == ["2"]
    assert not script.queries_of(log(0))


def test_before_any_worker_runs_it_is_said_what_the_job_waits_for(server: tuple[Script, Run]) -> None:
    script, run = server
    script.answers |= {("GET", JOB): job("Pending"), ("GET", PODS): (200, {"items": [pod(0, "waiting")]})}
    told = run()
    assert isinstance(told.exception, InvalidInput)
    assert "train: Pending; no worker has begun to run; `kompakt explain job train`" in str(told.exception)


def test_a_rank_that_is_no_number_is_told(server: tuple[Script, Run]) -> None:
    script, run = server
    two_workers(script)
    assert "--ranks: 'x' is no rank index" in str(run("--ranks", "x").exception)


def test_more_workers_than_can_be_read_at_a_time_are_not_begun(server: tuple[Script, Run]) -> None:
    script, run = server
    pods = [pod(index) for index in range(following.MOST_WORKERS + 1)]
    script.answers |= {("GET", JOB): job(), ("GET", PODS): (200, {"items": pods})}
    assert "choose some with --ranks" in str(run().exception)
    assert not [path for _, path in script.asked if path.endswith("/log")]


@dataclass
class TwoAttempts:
    """The first attempt restarts once its log was opened twice, the second one succeeds once its log was opened."""

    script: Script
    restarting: bool = False

    def opened(self, attempt: int) -> int:
        return len(self.script.queries_of(log(0, attempt)))

    def job(self) -> tuple[int, Any]:
        if self.opened(1) < 2:
            return job("Running")
        if not self.restarting:
            self.restarting = True
            return job("Restarting", 2)
        return job("Succeeded" if self.opened(2) else "Running", 2)

    def pods(self) -> tuple[int, Any]:
        if self.opened(1) < 2:
            return 200, {"items": [pod(0)]}
        return 200, {"items": [pod(0, "terminated" if self.opened(2) else "running", 2)]}


def test_following_reads_on_where_a_connection_broke_and_goes_through_attempts(server: tuple[Script, Run]) -> None:
    script, run = server
    world = TwoAttempts(script)
    script.answers |= {
        ("GET", JOB): world.job,
        ("GET", PODS): world.pods,
        ("GET", log(0)): [
            (200, Cut(at(1, "a") + at(2, "b") + at(2, "b"))),
            (200, at(2, "b") + at(2, "b") + at(2, "b") + at(3, "c")),
        ],
        ("GET", log(0, 2)): (200, at(9, "again")),
    }
    done = run("-f", "--no-prefix")
    lines = [line for line in done.output.splitlines() if not line.startswith("kompakt: ")]
    assert lines == ["a", "b", "b", "b", "c", "again"]
    assert "kompakt: train: Restarting, attempt 2" in done.output
    assert script.queries_of(log(0))[1]["sinceTime"] == ["2026-01-31T12:00:02Z"]


def test_a_log_that_may_not_be_read_is_told_and_ends_nothing(server: tuple[Script, Run]) -> None:
    script, run = server
    refused = {"kind": "Status", "code": 403, "reason": "Forbidden", "message": "pods/log is forbidden"}
    script.answers |= {
        ("GET", JOB): [job(), job(), job("Succeeded")],
        ("GET", PODS): (200, {"items": [pod(0, "terminated"), pod(1, "terminated")]}),
        ("GET", log(0)): (403, refused),
        ("GET", log(1)): (200, at(1, "b")),
    }
    done = run("-f")
    assert done.exit_code == 0
    assert "worker-0: no more of its log: pods/log is forbidden" in done.output
    assert "[worker-1] b" in done.output
