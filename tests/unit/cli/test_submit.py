"""`kompakt submit`: from manifests, and from an image and a command."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from kompakt import following
from kompakt_cli import main
from kompakt_core.errors import InvalidInput
from kompakt_core.job.spec import parse_job
from tests.support.cli.scripted_api import Script, scripted_api

JOBS = "/apis/kompakt.dev/v1alpha1/namespaces/ml/trainingjobs"
FLAGS = ("--name", "train", "--image", "i", "--gpus", "2")
Run = Callable[..., Result]


def client(*words: str, stdin: str = "") -> Result:
    return CliRunner().invoke(main.application(), ["submit", "--dry-run", "client", *words], input=stdin)


def sentence(result: Result) -> str:
    assert isinstance(result.exception, InvalidInput), result.output
    return str(result.exception)


def manifest(name: str = "a", **metadata: Any) -> str:
    role = {"name": "worker", "gpusPerReplica": 1, "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}}
    kind = {"apiVersion": "kompakt.dev/v1alpha1", "kind": "TrainingJob"}
    return yaml.safe_dump({**kind, "metadata": {"name": name, **metadata}, "spec": {"roles": [role]}})


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Script, Run]]:
    monkeypatch.setattr(following, "PAUSE_SECONDS", 0.0)
    with scripted_api(tmp_path) as (script, path):
        script.answers["POST", JOBS] = (201, {"metadata": {"name": "train", "namespace": "ml", "uid": "u"}})
        yield (
            script,
            lambda *words, **more: CliRunner().invoke(main.application(), ["submit", "--kubeconfig", path, *words], **more),
        )


def test_an_image_and_a_command_make_a_job() -> None:
    told = client(*FLAGS, "--workers", "3", "--pattern", "ring", "--compress", "0.01", "-e", "A=b=c", "--", "torchrun", "x.py")
    found = parse_job(yaml.safe_load(told.output))
    assert (found.name, found.workers, found.gpus) == ("train", 3, 6)
    assert (found.communication.pattern, found.compression.mode) == ("Ring", "ErrorBounded")
    (container,) = found.roles[0].template["spec"]["containers"]
    assert container["command"] == ["torchrun", "x.py"]
    assert container["env"] == [{"name": "A", "value": "b=c"}]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), "name a manifest, or an --image"),
        (("--gpus", "2", "a.yaml"), "need --image"),
        (("--image", "i"), "--name"),
        ((*FLAGS, "--pattern", "square"), "--pattern: unknown value 'square'; use one of Ring"),
        ((*FLAGS, "--compress", "0.5"), "targetGradientError"),
        ((*FLAGS, "-e", "A"), "KEY=VALUE"),
        (("absent.yaml",), "absent.yaml"),
    ],
)
def test_what_is_unclear_or_would_be_refused_is_told(words: tuple[str, ...], told: str) -> None:
    assert told in sentence(client(*words))


@pytest.mark.parametrize(
    "text", ["", "a: b: c", "[1]", "kind: ConfigMap", "kind: TrainingJob", "kind: TrainingJob\nmetadata: {name: x}"]
)
def test_a_file_that_holds_no_job_is_named(text: str) -> None:
    assert sentence(client("-", stdin=text)).startswith("standard input: ")


def test_each_wrong_field_of_a_manifest_has_a_line() -> None:
    job = yaml.safe_load(manifest())
    job["spec"]["roles"][0] |= {"replicas": "two", "gpusPerReplca": 2}
    job["spec"]["communication"] = {"pattern": "Rng"}
    where, *lines = sentence(client("-", stdin=yaml.safe_dump(job))).splitlines()
    assert where == "standard input: 3 fields are wrong:"
    assert [line.split(":")[0].strip() for line in lines] == [
        "spec.roles[0].replicas",
        "spec.roles[0].gpusPerReplca",
        "spec.communication.pattern",
    ]


def test_a_template_that_the_operator_would_refuse_is_refused_before() -> None:
    job = yaml.safe_load(manifest())
    spec = job["spec"]["roles"][0]["template"]["spec"]
    spec["restartPolicy"] = "OnFailure"
    spec["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": 1}}
    told = sentence(client("-", stdin=yaml.safe_dump(job)))
    assert "spec.roles[0].template.spec.restartPolicy: must be Never or left out" in told
    assert "ask for GPUs with the role's gpusPerReplica" in told


def test_other_objects_are_left_to_kubectl() -> None:
    assert "Secret; only TrainingJobs are submitted" in sentence(client("-", stdin=manifest() + "---\nkind: Secret\n"))


def test_names_and_documents_are_printed_for_programs() -> None:
    assert client("-", "-o", "name", stdin=manifest()).output == "trainingjob.kompakt.dev/a\n"
    several = yaml.safe_load(client("-", stdin=manifest() + "---\n" + manifest("b")).output)
    assert [one["metadata"]["name"] for one in several["items"]] == ["a", "b"]


def test_the_api_server_is_asked_before_anything_is_made(server: tuple[Script, Run]) -> None:
    script, run = server
    made = run(*FLAGS)
    assert made.stdout == "trainingjob.kompakt.dev/train created\n"
    assert made.stderr == "`kompakt explain job train -n ml` says where it goes, or why it waits\n"
    assert [query.get("dryRun") for query in script.queries_of(JOBS)] == [["All"], None]
    assert all(query["fieldValidation"] == ["Strict"] for query in script.queries_of(JOBS))


def test_where_one_is_refused_none_is_made(server: tuple[Script, Run]) -> None:
    script, run = server
    refused = (409, {"kind": "Status", "reason": "AlreadyExists", "message": 'trainingjobs "b" already exists'})
    script.answers["POST", JOBS] = [(201, {"metadata": {"name": "a", "namespace": "ml", "uid": "u"}}), refused]
    told = sentence(run("-", input=manifest() + "---\n" + manifest("b")))
    assert told.startswith("there is a TrainingJob b in namespace ml: `kubectl apply` changes it")
    assert [query.get("dryRun") for query in script.queries_of(JOBS)] == [["All"], ["All"]]


def test_a_namespace_that_the_manifest_contradicts_is_told(server: tuple[Script, Run]) -> None:
    script, run = server
    assert "namespace theirs, --namespace says ml" in sentence(run("-", "-n", "ml", input=manifest(namespace="theirs")))
    assert not script.asked


@pytest.mark.parametrize(("phase", "code"), [("Succeeded", 0), ("Failed", 1)])
def test_waiting_ends_with_the_job_and_tells_how(server: tuple[Script, Run], phase: str, code: int) -> None:
    script, run = server
    failed = {"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded", "message": "pod x: exit code 3"}
    conditions = [failed] if code else []
    stages = (
        {"phase": "Pending", "scheduling": {"message": "no room"}},
        {"phase": "Running"},
        {"phase": phase, "conditions": conditions},
    )
    meta = {"name": "train", "namespace": "ml", "uid": "u"}
    script.answers["GET", f"{JOBS}/train"] = [(200, {"metadata": meta, "status": status}) for status in stages]
    done = run(*FLAGS, "--wait")
    assert done.exit_code == code
    assert "train: Pending (no room)" in done.output
    assert ("BackoffLimitExceeded: pod x: exit code 3" in done.output) == bool(code)


def test_a_job_that_was_replaced_meanwhile_is_not_taken_for_it(server: tuple[Script, Run]) -> None:
    script, run = server
    script.answers["GET", f"{JOBS}/train"] = (200, {"metadata": {"name": "train", "namespace": "ml", "uid": "another"}})
    assert "another one made under its name" in sentence(run(*FLAGS, "--wait"))
