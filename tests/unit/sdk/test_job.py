"""A TrainingJob from Python, on an API server that answers as a script says."""

import threading
import time
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kompakt
from kompakt import InvalidInput, JobExists, JobFailed, JobNotFound, JobRefused, NoAnswer, TrainingJob, following, job
from kompakt.following import JobLogs, WatchedJob
from kompakt.training_jobs import TrainingJobs
from kompakt_core.contract import job_owner, worker_labels
from kompakt_core.contract.job_owner import JobOwner
from kompakt_core.contract.worker_labels import AttemptLabels, WorkerLabels
from tests.support.cli.scripted_api import Script, scripted_api

JOBS = "/apis/kompakt.dev/v1alpha1/namespaces/ml/trainingjobs"
JOB = f"{JOBS}/train"
PODS = "/api/v1/namespaces/ml/pods"
ROLE = {"name": "worker", "gpusPerReplica": 1, "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}}
META = {"name": "train", "namespace": "ml", "uid": "u", "resourceVersion": "7"}
ABSENT = {"reason": "NotFound", "message": 'trainingjobs.kompakt.dev "train" not found'}
New = Callable[..., TrainingJob]


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Script]:
    """The cluster of KUBECONFIG; the job can be made there."""
    monkeypatch.setattr(following, "PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(job, "PAUSE_SECONDS", 0.01)
    with scripted_api(tmp_path) as (script, path):
        monkeypatch.setenv("KUBECONFIG", path)
        script.answers[("POST", JOBS)] = (201, {"metadata": META})
        yield script


def there(phase: str = "", uid: str = "u", **status: Any) -> tuple[int, Any]:
    known = {"phase": phase, "attempt": 1, **status} if phase else {"observedGeneration": -1}
    return 200, {"metadata": META | {"uid": uid}, "spec": {"roles": [ROLE]}, "status": known}


def pod(index: int, state: str = "running") -> dict[str, Any]:
    labels = worker_labels.encode(WorkerLabels(AttemptLabels("train", "u", 1), "worker", index))
    meta = {"name": f"train-worker-{index}-a1", "namespace": "ml", "uid": f"p{index}", "labels": labels}
    return {
        "metadata": meta | {"ownerReferences": [job_owner.encode(JobOwner("ml", "train", "u"))]},
        "spec": {"containers": [{"name": "c"}]},
        "status": {"containerStatuses": [{"name": "c", "state": {state: {}}}]},
    }


def at(second: int, text: str) -> str:
    return f"2026-01-31T12:00:{second:02}.000000000Z {text}\n"


def two_pods(script: Script, state: str = "running") -> None:
    script.answers |= {
        ("GET", PODS): (200, {"items": [pod(1, state), pod(0, state)]}),
        ("GET", f"{PODS}/train-worker-0-a1/log"): (200, at(1, "a") + at(3, "c")),
        ("GET", f"{PODS}/train-worker-1-a1/log"): (200, at(2, "b") + at(3, "d")),
    }


def submitted() -> TrainingJob:
    return TrainingJob("train", "i").submit()


def test_all_public_names_are_there() -> None:
    assert [name for name in kompakt.__all__ if not hasattr(kompakt, name)] == []
    assert sorted(kompakt.__all__) == kompakt.__all__


def test_an_image_and_a_command_are_posted_as_a_job(script: Script) -> None:
    made = TrainingJob(
        "train",
        "i",
        ["python", "x.py"],
        workers=3,
        gpus=2,
        pattern="Ring",
        compression=0.01,
        env={"A": "1"},
        labels={"q": "team"},
    ).submit()
    (body,) = script.bodies
    (role,) = body["spec"]["roles"]
    (container,) = role["template"]["spec"]["containers"]
    assert (role["replicas"], role["gpusPerReplica"], container["command"]) == (3, 2, ["python", "x.py"])
    assert body["metadata"] == {"name": "train", "labels": {"q": "team"}}
    assert body["spec"]["activationCompression"] == {"mode": "ErrorBounded", "targetGradientError": "0.01"}
    assert (made.name, made.namespace, repr(made)) == ("train", "ml", "TrainingJob('train')")
    assert script.queries == [{"fieldValidation": ["Strict"]}]


def test_a_spec_is_posted_as_it_is_and_stays_its_owners(script: Script) -> None:
    spec: Any = {"roles": [dict(ROLE)], "activationCompression": {"mode": "Lossless"}}
    made = TrainingJob("train", spec=spec, namespace="other")
    spec["roles"] = []
    script.answers[("POST", JOBS.replace("/ml/", "/other/"))] = (201, {"metadata": META | {"namespace": "other"}})
    made.submit()
    assert script.bodies[0]["spec"] == {"roles": [ROLE], "activationCompression": {"mode": "Lossless"}}
    made.manifest()["spec"].clear()
    assert made.manifest()["spec"]["roles"] == [ROLE]


def test_a_dry_run_makes_nothing(script: Script) -> None:
    tried = TrainingJob("train", "i", compression={"mode": "Lossless"}).submit(dry_run=True)
    assert script.queries[0]["dryRun"] == ["All"]
    with pytest.raises(InvalidInput, match=r"train was not submitted: call submit\(\)"):
        tried.status()


def test_what_is_said_of_compression_stays_its_owners() -> None:
    said: Any = {"mode": "ErrorBounded", "overrides": [{"modules": "head", "mode": "None"}]}
    made = TrainingJob("train", "i", compression=said)
    said["overrides"][0]["modules"] = "*"
    assert made.manifest()["spec"]["activationCompression"]["overrides"] == [{"modules": "head", "mode": "None"}]


@given(st.floats(1e-9, 0.0999))
def test_a_target_is_written_without_an_exponent(target: float) -> None:
    made = TrainingJob("train", "i", compression=target).manifest()["spec"]["activationCompression"]["targetGradientError"]
    assert "e" not in made.lower()
    assert Decimal(made) == Decimal(str(target))


@pytest.mark.parametrize(
    ("made", "sentence"),
    [
        (lambda: TrainingJob("x"), "TrainingJob x: give an image and a command, or a spec"),
        (lambda: TrainingJob("x", "i", spec={"roles": []}), "TrainingJob x: image, command, .* stand in the spec"),
        (lambda: TrainingJob("x", workers=2, spec={"roles": []}), "TrainingJob x: image, command, .* stand in the spec"),
        (lambda: TrainingJob("x", "i", "python train.py"), r"the command is a list of words.*got 'python train.py'"),
        (lambda: TrainingJob("x", "i", compression=0.0).submit(), "TrainingJob x: .*targetGradientError"),
        (lambda: TrainingJob("x", "i", compression=0.5).submit(), "TrainingJob x: .*targetGradientError"),
        (lambda: TrainingJob("x", "i", workers="2").submit(), r"roles\[0\].replicas: expected a whole number, got '2'"),
        (lambda: TrainingJob("X", "i", gpus=-1, pattern="ring").submit(), "TrainingJob X: 3 fields are wrong:\n"),
        (lambda: TrainingJob.from_manifest({"kind": "Pod"}), "the manifest: "),
        (
            lambda: TrainingJob("x", "i", kubeconfig="/gone").submit(),
            "no usable kubeconfig: .*/gone.*; name one with kubeconfig=",
        ),
        (lambda: TrainingJob.get("a/b"), "'a/b' is no name"),
    ],
)
def test_what_cannot_be_made_says_what_is_wrong_before_anything_is_sent(
    script: Script, made: Callable[[], Any], sentence: str
) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        made()
    assert script.asked == []


def test_a_manifest_keeps_its_namespace(script: Script) -> None:
    manifest = {
        "apiVersion": "kompakt.dev/v1alpha1", "kind": "TrainingJob",
        "metadata": {"name": "train", "namespace": "other", "labels": {"a": "b"}}, "spec": {"roles": [ROLE]},
    }  # fmt: skip
    made = TrainingJob.from_manifest(manifest)
    jobs = JOBS.replace("/ml/", "/other/")
    script.answers["POST", jobs] = 201, {"metadata": META}
    made.submit()
    assert script.asked == [("POST", jobs)]
    assert script.bodies[0] == made.manifest() == manifest
    with pytest.raises(InvalidInput, match="the manifest says namespace other, the argument says b"):
        TrainingJob.from_manifest(manifest, namespace="b")
    with pytest.raises(InvalidInput, match=r"metadata.name: is required"):
        TrainingJob.from_manifest({**manifest, "metadata": {"generateName": "a-"}})


@pytest.mark.parametrize(
    ("answer", "error", "sentence"),
    [
        ((409, {"reason": "AlreadyExists", "message": "exists"}), JobExists, "there is a TrainingJob train in namespace ml"),
        ((422, {"reason": "Invalid", "message": "spec.roles: no"}), JobRefused, "422 Unprocessable.*; spec.roles: no"),
        ((403, {"reason": "Forbidden", "message": "no right"}), JobRefused, "403 Forbidden; no right"),
        ((404, "404 page not found"), JobRefused, "knows no such kind"),
        ((503, {"message": "away"}), NoAnswer, "503 Service Unavailable; .*away"),
    ],
)
def test_a_refusal_has_a_kind_and_the_servers_words(
    script: Script, answer: tuple[int, Any], error: type[Exception], sentence: str
) -> None:
    script.answers[("POST", JOBS)] = answer
    with pytest.raises(error, match=sentence) as caught:
        submitted()
    assert type(caught.value) is error
    assert getattr(caught.value, "status", answer[0]) == answer[0]


def test_get_and_list_give_jobs_that_are_there(script: Script) -> None:
    script.answers |= {("GET", JOB): there("Running"), ("GET", JOBS): (200, {"items": [there()[1]]})}
    assert TrainingJob.get("train").status()["phase"] == "Running"
    (found,) = TrainingJob.list()
    assert (found.name, found.namespace, found.summary()) == ("train", "ml", "train: Running")
    script.answers["GET", f"{JOBS}/absent"] = 404, ABSENT
    with pytest.raises(JobNotFound, match="404 Not Found"):
        TrainingJob.get("absent", "ml")


def test_status_and_report_are_those_of_the_cluster(script: Script) -> None:
    script.answers[("GET", JOB)] = [there(), there("Succeeded", compression={"ratio": "5.00"})]
    made = submitted()
    assert made.report() is None
    assert made.report() == {"ratio": "5.00"}


def test_another_job_under_the_name_is_not_taken_for_it(script: Script) -> None:
    script.answers[("GET", JOB)] = there("Running", uid="another")
    made = submitted()
    for ask in (made.status, made.wait, lambda: list(made.logs(follow=True))):
        with pytest.raises(JobNotFound, match="the job was deleted, and another one made under its name"):
            ask()
    made.delete(wait=False)
    assert ("DELETE", JOB) not in script.asked


def test_waiting_tells_each_change_and_gives_the_last_status(script: Script) -> None:
    script.answers[("GET", JOB)] = [
        there(),
        there("Running"),
        there("Running"),
        there("Succeeded", compression={"ratio": "5.00"}),
    ]
    told: list[str] = []
    assert submitted().wait(on_change=told.append)["phase"] == "Succeeded"
    seen = ["train: not seen by the operator yet", "train: Running", "train: Succeeded (activations 5.00 times smaller)"]
    assert told == seen


def test_a_failed_job_is_an_error_that_says_why(script: Script) -> None:
    condition = {"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded", "message": "exit code 3"}
    script.answers[("GET", JOB)] = there("Failed", conditions=[condition])
    with pytest.raises(JobFailed, match=r"^train: Failed \(BackoffLimitExceeded: exit code 3\)$") as caught:
        submitted().wait(5)
    assert caught.value.job_status["attempt"] == 1


def test_waiting_ends_after_its_timeout(script: Script) -> None:
    script.answers[("GET", JOB)] = there("Running")
    began = time.monotonic()
    with pytest.raises(TimeoutError, match=r"^train: Running: not over after 0.1 s; it goes on$"):
        submitted().wait(0.1)
    assert time.monotonic() - began < 5


def test_waiting_outlasts_an_api_server_that_is_away(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    away = (503, {"message": "away"})
    script.answers[("GET", JOB)] = [there("Running"), *[away] * 3, there("Succeeded")]
    assert submitted().wait()["phase"] == "Succeeded"
    monkeypatch.setattr(job, "PATIENCE_SECONDS", 0.0)
    script.answers[("GET", JOB)] = away
    with pytest.raises(NoAnswer, match="away"):
        submitted().wait()


def test_patience_begins_anew_with_each_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    away = NoAnswer("away")
    answers = [there("Running")[1], away, there("Running")[1], away, there("Running")[1], away, there("Succeeded")[1]]

    class Seldom(Endless):
        def get(self, name: str) -> Any:
            found = answers.pop(0)
            if isinstance(found, NoAnswer):
                raise found
            return found

    monkeypatch.setattr(following, "time", SimpleNamespace(monotonic=lambda: now[0]))

    def sleep(seconds: float) -> None:
        now[0] += 6

    assert WatchedJob(Seldom(), JobOwner("ml", "train", "u"), sleep=sleep, patience=10).ended()["status"]["phase"] == "Succeeded"
    answers[:] = [there("Running")[1], away, away]
    with pytest.raises(NoAnswer):
        WatchedJob(Seldom(), JobOwner("ml", "train", "u"), sleep=sleep, patience=10).ended()


def test_lines_are_merged_and_know_their_rank(script: Script) -> None:
    script.answers[("GET", JOB)] = there("Running")
    two_pods(script)
    lines = list(submitted().logs())
    assert [(line.rank, line.text) for line in lines] == [(0, "a"), (1, "b"), (0, "c"), (1, "d")]
    assert str(lines[1]) == "[worker-1] b"
    assert [line.text for line in submitted().logs(ranks={1}, tail=5)] == ["b", "d"]
    assert script.queries_of(f"{PODS}/train-worker-1-a1/log")[-1]["tailLines"] == ["5"]


def test_before_any_worker_runs_logs_say_what_the_job_waits_for(script: Script) -> None:
    script.answers |= {("GET", JOB): there("Pending", scheduling={"message": "no room"}), ("GET", PODS): (200, {"items": []})}
    with pytest.raises(InvalidInput, match=r"train: Pending \(no room\); no worker has begun to run"):
        list(submitted().logs())
    with pytest.raises(InvalidInput, match="tail: a number of lines from 0 up; got -1"):
        submitted().logs(tail=-1)


def test_following_goes_on_until_the_job_is_over(script: Script) -> None:
    two_pods(script, "terminated")
    script.answers[("GET", JOB)] = [there("Running"), there("Succeeded")]
    assert sorted(line.text for line in submitted().logs(follow=True)) == ["a", "b", "c", "d"]


def test_a_log_that_may_not_be_read_is_a_warning(script: Script) -> None:
    two_pods(script, "terminated")
    script.answers |= {
        ("GET", JOB): there("Succeeded"),
        ("GET", f"{PODS}/train-worker-0-a1/log"): (403, {"message": "pods/log is forbidden"}),
    }
    with pytest.warns(UserWarning, match="worker-0: no more of its log: pods/log is forbidden"):
        assert sorted(line.text for line in submitted().logs(follow=True)) == ["b", "d"]


class Endless(TrainingJobs):
    """A running job whose worker prints a line every few milliseconds, for ever."""

    def __init__(self) -> None:
        self.namespace = "ml"

    def get(self, name: str) -> Any:
        return there("Running")[1]

    def pods(self, owner: JobOwner) -> Any:
        return [pod(0)]

    def log(self, name: str, query: Any) -> Any:
        return self

    def batches(self, unfinished: bool = False) -> Iterator[list[bytes]]:
        while True:
            yield [at(1, "x").encode()]
            time.sleep(0.005)


def test_whoever_stops_following_ends_the_threads_that_read() -> None:
    before = set(threading.enumerate())
    lines = WatchedJob(
        Endless(), JobOwner("ml", "train", "u"), JobLogs(Endless()), sleep=lambda seconds: time.sleep(0.01)
    ).lines()
    assert next(lines).text == "x\n"
    (reading,) = set(threading.enumerate()) - before
    lines.close()  # type: ignore[attr-defined]
    reading.join(10)
    assert not reading.is_alive()


def test_deleting_waits_for_the_job_and_its_pods(script: Script) -> None:
    made = submitted()
    script.answers |= {
        ("GET", JOB): [there("Running"), there("Running"), (404, ABSENT)],
        ("DELETE", JOB): (200, {}),
        ("GET", PODS): [(200, {"items": [pod(0)]}), (200, {"items": []})],
    }
    made.delete(wait=True)
    assert script.asked[-1] == ("GET", PODS)
    assert script.bodies[script.asked.index(("DELETE", JOB))]["preconditions"]["uid"] == "u"
    made.delete(wait=True)  # gone: nothing to do


def test_deleting_gives_up_after_its_timeout(script: Script) -> None:
    script.answers |= {("GET", JOB): there("Running"), ("DELETE", JOB): (200, {})}
    with pytest.raises(TimeoutError, match=r"train: the job or its pods are still there after 0\.05 s"):
        submitted().delete(wait=True, timeout=0.05)
