"""The program that runs before an uninstall takes the definitions away: what it deletes, and whose pods it waits for."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kompakt_core.contract import job_owner
from kompakt_core.contract.job_owner import JobOwner
from tests.support.client.api_server import Scripted, serving
from tools.kube.pki import new_authority

PROGRAM = Path(__file__).resolve().parents[2] / "charts/kompakt/files/remove.py"
JOB = {"metadata": {"name": "j", "namespace": "ml", "uid": "u", "resourceVersion": "7"}}
OWNER = job_owner.encode(JobOwner("ml", "j", "u"))
NONE = (200, {"items": []})
CHANGED = (409, {"reason": "Conflict"})


def run(folder: Path, answers: list[Any], seconds: str = "5") -> tuple["subprocess.CompletedProcess[str]", Scripted]:
    (folder / "token").write_text("t")
    new_authority(folder)  # its ca.crt
    with serving() as server:
        server.answers = answers
        command = [sys.executable, PROGRAM, server.address, folder, seconds]
        return subprocess.run(command, capture_output=True, text=True, check=False), server


def asked_to_delete(server: Scripted) -> list[Any]:
    return [json.loads(body)["preconditions"] for method, _, _, body in server.asked if method == "DELETE"]


def test_a_job_is_deleted_as_it_was_seen_and_one_that_changed_meanwhile_is_looked_at_again(tmp_path: Path) -> None:
    later = {"metadata": {**JOB["metadata"], "resourceVersion": "8"}}
    answers = [(200, {"items": [JOB]}), CHANGED, (200, {"items": [later]}), (200, later), NONE, NONE]
    done, server = run(tmp_path, answers)
    assert (done.returncode, done.stdout.count("ml/j deleted")) == (0, 1), done.stderr
    assert asked_to_delete(server) == [{"uid": "u", "resourceVersion": "7"}, {"uid": "u", "resourceVersion": "8"}]


@pytest.mark.parametrize(
    ("owner", "stays"),
    [(OWNER, True), ({**OWNER, "controller": False}, False), ({**OWNER, "apiVersion": "elsewhere.org/v1"}, False)],
    ids=["a worker", "a pod that something else controls", "a worker of another project's TrainingJob"],
)
def test_only_workers_are_waited_for(tmp_path: Path, owner: dict[str, Any], stays: bool) -> None:
    pod = {"metadata": {"name": "p", "namespace": "ml", "ownerReferences": [owner]}}
    done, _ = run(tmp_path, [NONE, (200, {"items": [pod]}), NONE], seconds="0")
    assert ("pods ml/p stay" in done.stderr) is stays
