"""Jobs from the command line on real nodes: submitted, followed through an attempt that fails, and listed."""

import json

import yaml

from tests.support.node.commands import kompakt_command
from tests.support.node.jobs import await_phase, job, sleeping, status

TALKS = "echo begins; sleep 2; echo ${POD##*-}; test ${POD##*-} = a2"
POD = {"env": [{"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]}


def submitted(kompakt, jobs, tmp_path, name, script, *words, **fields):
    """The command's answer; the job is deleted after the test."""
    path = tmp_path / f"{name}.yaml"
    path.write_text(yaml.safe_dump(job(name, kompakt.images.names["pause"], script, **fields)))
    jobs.names.append(name)
    return kompakt_command(kompakt, "submit", str(path), *words)


def test_a_job_is_followed_through_its_attempts(kompakt, jobs, tmp_path):
    done = submitted(kompakt, jobs, tmp_path, "talks", TALKS, "--follow", container=POD, runPolicy={"backoffLimit": 1})
    assert done.returncode == 0, done.stderr
    first, *lines = done.stdout.splitlines()
    assert first == "trainingjob.kompakt.dev/talks created"
    assert sorted(lines[:4]) == ["[worker-0] a1", "[worker-0] begins", "[worker-1] a1", "[worker-1] begins"]
    assert sorted(lines[4:]) == ["[worker-0] a2", "[worker-0] begins", "[worker-1] a2", "[worker-1] begins"]
    assert "kompakt: talks: Succeeded, attempt 2" in done.stderr


def test_a_job_that_fails_ends_the_command_with_one(kompakt, jobs, tmp_path):
    done = submitted(kompakt, jobs, tmp_path, "fails", "exit 3", "--wait", replicas=1, runPolicy={"backoffLimit": 0})
    assert done.returncode == 1
    assert "kompakt: fails: Failed (BackoffLimitExceeded: " in done.stderr
    again = submitted(kompakt, jobs, tmp_path, "fails", "exit 3")
    assert again.returncode == 2
    assert "there is a TrainingJob fails in namespace default" in again.stderr


def test_running_jobs_are_listed_and_their_logs_read(kompakt, jobs, tmp_path):
    made = submitted(kompakt, jobs, tmp_path, "listed", f"echo here; {sleeping(1000)}", "-o", "name")
    assert made.stdout == "trainingjob.kompakt.dev/listed\n", made.stderr
    await_phase(kompakt, "listed", "Running")
    top = kompakt_command(kompakt, "top", "-o", "wide")
    assert top.returncode == 0, top.stderr
    shown = top.stdout.splitlines()
    row = next((line.split() for line in shown if line.startswith("listed")), shown)
    assert row[:4] == ["listed", "Running", "4", status(kompakt, "listed")["scheduling"]["plan"]["level"]]
    logs = kompakt_command(kompakt, "logs", "listed", "--ranks", "1", "--prefix")
    assert logs.stdout == "[worker-1] here\n", logs.stderr
    (found,) = json.loads(kompakt_command(kompakt, "top", "-o", "json").stdout)["items"]
    assert found["metadata"]["name"] == "listed"


def test_what_the_api_server_would_refuse_is_told_before_anything_is_made(kompakt, jobs, tmp_path):
    tried = submitted(kompakt, jobs, tmp_path, "tried", "true", "--dry-run", "server")
    assert tried.stdout == "trainingjob.kompakt.dev/tried would be created\n", tried.stderr
    assert "tried" not in kompakt_command(kompakt, "top", "-a", "-o", "name").stdout
    typed = submitted(kompakt, jobs, tmp_path, "typo", "true", communicaton={})
    assert typed.returncode == 2
    assert "communicaton" in typed.stderr
