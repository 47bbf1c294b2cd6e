"""What `kompakt profile --job` asks an API server, and what it says when that refuses."""

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from kompakt.training_jobs import refusal
from kompakt_cli.profile_jobs import ProfilingCluster
from kompakt_core.contract import job_owner, worker_labels
from kompakt_core.contract.job_owner import JobOwner
from kompakt_core.contract.worker_labels import AttemptLabels
from kompakt_core.errors import InvalidInput
from tests.support.cli.scripted_api import Script, scripted_api
from tests.support.cli.standin import kubeconfig

JOBS = "/apis/kompakt.dev/v1alpha1/namespaces/ml/trainingjobs"
PODS = "/api/v1/namespaces/ml/pods"
JOB = {"kind": "TrainingJob", "metadata": {"name": "train-all"}, "spec": {}}
MADE = {"kind": "TrainingJob", "metadata": {"name": "train-all", "uid": "u", "resourceVersion": "7"}, "spec": {}}
OWNER = JobOwner("ml", "train-all", "u")


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Script, ProfilingCluster]]:
    with scripted_api(tmp_path) as (script, path):
        yield script, ProfilingCluster(path, None, None)


def makes(script: Script, there: dict[str, Any] = MADE, deleted: tuple[int, Any] = (200, {"kind": "Status"})) -> None:
    """A job can be made, read as it is `there`, and deleted."""
    path = f"{JOBS}/train-all"
    script.answers |= {("POST", JOBS): (201, MADE), ("GET", path): (200, there), ("DELETE", path): deleted}


def test_a_job_is_made_and_deleted_also_when_the_run_breaks(served: tuple[Script, ProfilingCluster]) -> None:
    script, cluster = served
    makes(script)
    names: list[str] = []
    with pytest.raises(ZeroDivisionError), cluster.running(JOB) as name:
        names.append(f"{name}: {1 // 0}" if script.asked else "")
    assert names == []
    assert script.asked == [("POST", JOBS), ("GET", f"{JOBS}/train-all"), ("DELETE", f"{JOBS}/train-all")]
    assert script.bodies[0] == JOB
    assert script.bodies[-1]["preconditions"] == {"uid": "u", "resourceVersion": "7"}


def test_a_job_that_another_made_under_the_name_is_left_alone(served: tuple[Script, ProfilingCluster]) -> None:
    script, cluster = served
    makes(script, {"metadata": {"name": "train-all", "uid": "another", "resourceVersion": "9"}})
    with cluster.running(JOB):
        pass
    assert ("DELETE", f"{JOBS}/train-all") not in script.asked


def test_a_job_that_is_written_whenever_it_is_to_be_deleted_is_told(served: tuple[Script, ProfilingCluster]) -> None:
    script, cluster = served
    makes(script, deleted=(409, {"kind": "Status", "reason": "Conflict", "message": "changed"}))
    with pytest.raises(InvalidInput, match="409 Conflict; the TrainingJob was changed"), cluster.running(JOB):
        pass
    assert script.asked.count(("DELETE", f"{JOBS}/train-all")) > 1


def test_status_and_annotation(served: tuple[Script, ProfilingCluster]) -> None:
    script, cluster = served
    script.answers |= {
        ("GET", f"{JOBS}/a"): (200, {"status": {"phase": "Running"}}),
        ("GET", f"{JOBS}/new"): (200, JOB),
        ("PATCH", f"{JOBS}/a"): (200, JOB),
    }
    assert cluster.status("a") == {"phase": "Running"}
    assert cluster.status("new") == {}
    cluster.annotate("a", "{}")
    assert script.bodies[-1] == {"metadata": {"annotations": {"kompakt.dev/profile": "{}"}}}
    assert script.types[-1] == "application/merge-patch+json"


LABELS = worker_labels.encode_attempt(AttemptLabels("train-all", "u", 1))


def worker(name: str, node: str, *containers: dict[str, Any], **status: Any) -> dict[str, Any]:
    meta = {"name": name, "namespace": "ml", "labels": LABELS, "ownerReferences": [job_owner.encode(OWNER)]}
    return {"metadata": meta, "spec": {"nodeName": node}, "status": {"containerStatuses": containers or None, **status}}


def ended(message: str | None) -> dict[str, Any]:
    return {"state": {"terminated": {"exitCode": 0, "message": message}}}


def test_what_pods_left_and_where_they_sat(served: tuple[Script, ProfilingCluster]) -> None:
    script, cluster = served
    running = {"state": {"running": {}}}
    waiting = worker("c", "")
    foreign = worker("d", "n3", ended("forged"))
    del waiting["spec"]["nodeName"], waiting["status"], foreign["metadata"]["ownerReferences"]
    pods = [worker("b", "n2", ended("two"), running), worker("a", "n1", ended("one"), ended(None), ended("")), waiting, foreign]
    makes(script)
    script.answers["GET", PODS] = (200, {"items": pods})
    with cluster.running(JOB) as name:
        assert cluster.last_words(name) == ["two", "one"]
        assert cluster.nodes(name) == ("None", "n1", "n2")
    assert "train" in script.queries[1]["labelSelector"][0]


def test_the_last_lines_of_those_pods_whose_node_answers(served: tuple[Script, ProfilingCluster]) -> None:
    script, cluster = served
    makes(script)
    script.answers |= {
        ("GET", PODS): (200, {"items": [worker("a", "n1"), worker("gone", "n1"), worker("b", "n2")]}),
        ("GET", f"{PODS}/a/log"): (200, "".join(f"a{i}\n" for i in range(10))),
        ("GET", f"{PODS}/gone/log"): (400, {"message": "container is waiting to start"}),
        ("GET", f"{PODS}/b/log"): (200, "".join(f"b{i}\n" for i in range(10))),
    }
    with cluster.running(JOB) as name:
        assert cluster.last_lines(name, "trainer") == [*(f"a{i}" for i in range(5, 10)), *(f"b{i}" for i in range(10))]
    assert script.queries[2] == {"container": ["trainer"], "tailLines": ["15"]}


@pytest.mark.parametrize(
    ("status", "sentence"),
    [
        (403, "the API server: 403 Forbidden; trainingjobs is forbidden"),
        (404, "the API server: 404 Not Found; trainingjobs is forbidden"),
        (409, "the API server: 409 Conflict; trainingjobs is forbidden"),
        (422, "the API server: 422 Unprocessable"),
        (500, "the API server: 500 Internal Server Error; POST"),
    ],
)
def test_a_refusal_is_one_sentence(served: tuple[Script, ProfilingCluster], status: int, sentence: str) -> None:
    script, cluster = served
    script.answers["POST", JOBS] = (status, {"kind": "Status", "message": "trainingjobs is forbidden"})
    with pytest.raises(InvalidInput) as refused, cluster.running(JOB):
        pytest.fail("there is no job to run")
    assert str(refused.value).startswith(sentence)
    assert script.asked == [("POST", JOBS)], "nothing was made, so nothing is deleted, and no write is repeated"


def test_no_answer_says_that_the_api_server_cannot_be_reached(tmp_path: Path) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    server.server_close()
    cluster = ProfilingCluster(str(kubeconfig(tmp_path, server.server_port)), None, "ml")
    with pytest.raises(InvalidInput, match=r"^the API server cannot be reached: POST /apis/kompakt.dev/"), cluster.running(JOB):
        pytest.fail("there is no job to run")


def test_a_token_file_that_goes_away_or_bad_is_said(tmp_path: Path) -> None:
    path, token = kubeconfig(tmp_path, 1), tmp_path / "token"
    token.write_text("x")
    path.write_text(path.read_text().replace("token: mine", f"tokenFile: {token}"))
    cluster = ProfilingCluster(str(path), None, None)
    token.write_bytes(b"\xff")
    with pytest.raises(InvalidInput, match=r"^the API server cannot be reached: .*decode"):
        cluster.status("a")
    token.unlink()
    with pytest.raises(InvalidInput, match=r"^the API server cannot be reached: .*token"):
        cluster.status("a")


def test_a_useless_kubeconfig_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"^no usable kubeconfig: .*/gone'; name one with --kubeconfig or KUBECONFIG$"):
        ProfilingCluster(str(tmp_path / "gone"), None, None)


def test_a_long_refusal_is_cut_and_an_unknown_status_has_no_phrase() -> None:
    assert refusal(403, "x" * 400) == f"the API server: 403 Forbidden; {'x' * 300}"
    assert refusal(499, "odd") == "the API server: 499; odd"
