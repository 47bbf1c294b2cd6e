"""From a TrainingJob's manifest to its measured runs."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kompakt_cli.profile_manifest import MODES, StepLimits, gpus_of, read_manifest, run_document
from kompakt_core.errors import InvalidInput
from kompakt_core.job.spec import parse_job

PLAN = StepLimits(5, 20, 600.0)
DATA = StepLimits(5, 20, 600.0, ("/data",))


def manifest(**spec: Any) -> dict[str, Any]:
    template = {"spec": {"containers": [{"name": "side", "image": "i"}, {"name": "trainer", "image": "i"}]}}
    role = {"name": "worker", "replicas": 4, "gpusPerReplica": 4, "gpuContainer": "trainer", "template": template}
    cpu = {"name": "loader", "gpusPerReplica": 0, "template": template}
    meta = {"name": "a-job-with-a-name-of-forty-characters-xx", "labels": {"team": "a"}}
    return {"kind": "TrainingJob", "metadata": meta, "spec": {"roles": [cpu, role], **spec}}


def env_of(document: dict[str, Any]) -> dict[str, str]:
    container = document["spec"]["roles"][0]["template"]["spec"]["containers"][1]
    return {one["name"]: one["value"] for one in container["env"]}


def test_a_run_is_one_worker_for_a_few_steps_and_the_job_stays_as_it_was() -> None:
    whole = manifest(
        activationCompression={"mode": "ErrorBounded"},
        placement={"policy": "Best"},
        priorityClassName="urgent",
        communication={"pattern": "Ring"},
    )
    before = json.dumps(whole)
    alone = [mode for mode in MODES if mode != "halves"]
    found = {mode: run_document(whole, mode, 1 if mode == "one" else 4, DATA) for mode in alone}
    assert json.dumps(whole) == before
    assert {found[mode]["metadata"]["name"] for mode in alone} == {f"a-job-with-a-name-of-fort-profile-{mode}" for mode in alone}
    for mode, document in found.items():
        job = parse_job(document)
        (role,) = job.roles
        assert job.injects, "else nobody times the steps"
        assert (role.name, role.replicas, role.gpus_per_replica) == ("worker", 1, 1 if mode == "one" else 4)
        assert (job.compression.mode, job.priority_class_name, job.run_policy.backoff_limit) == ("None", "urgent", 0)
        data = mode if mode in ("cold", "warm") else "synthetic"
        assert env_of(document)["KOMPAKT_PROFILE"] == f"{data},5,20"
        assert json.loads(env_of(document)["KOMPAKT_PROFILE_DATA"]) == ["/data"]
        assert document["metadata"]["labels"] == {"team": "a"}
    assert gpus_of(whole) == (4, 16)


def test_runs_are_those_that_tell_something() -> None:
    assert PLAN.modes(4) == ["one", "all", "warm", "halves"]
    assert DATA.modes(3) == ["one", "all", "cold", "warm"], "three GPUs have no two halves"
    assert PLAN.modes(1) == ["all", "warm"]
    assert env_of(run_document(manifest(), "warm", 4, PLAN))["KOMPAKT_PROFILE"] == "real,5,20", "nobody said where data are"


def fields_of(role: dict[str, Any]) -> list[list[dict[str, Any]]]:
    affinity = role["template"]["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    return [term["matchFields"] for term in affinity["nodeSelectorTerms"]]


def test_halves_are_two_workers_one_on_the_node_and_one_elsewhere_whatever_else_is_asked_of_nodes() -> None:
    whole = manifest(placement={"requiredLevel": "Machine", "policy": "Best"})
    terms = [
        {"matchExpressions": [{"key": "zone", "operator": "Exists"}]},
        {"matchExpressions": [{"key": "b", "operator": "Exists"}]},
    ]
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    for affine in (None, affinity):
        if affine:
            whole["spec"]["roles"][1]["template"]["spec"]["affinity"] = affine
        before = json.dumps(whole)
        found = run_document(whole, "halves", 2, PLAN, "box-7")
        assert json.dumps(whole) == before
        job = parse_job(found)
        assert [(role.replicas, role.gpus_per_replica) for role in job.roles] == [(1, 2), (1, 2)]
        assert (job.placement.required_level, job.placement.policy) == ("Cluster", "Best")
        for role, operator in zip(found["spec"]["roles"], ("In", "NotIn"), strict=True):
            wanted = [{"key": "metadata.name", "operator": operator, "values": ["box-7"]}]
            assert fields_of(role) == [wanted] * (2 if affine else 1)
            assert env_of({"spec": {"roles": [role]}})["KOMPAKT_PROFILE"] == "synthetic,5,20"


def test_only_what_must_be_ours_takes_the_place_of_the_templates_own() -> None:
    whole = manifest()
    own = {"OMP_NUM_THREADS": "8", "KOMPAKT_PROFILE": "real,1,4", "HOME": "/tmp"}
    container = whole["spec"]["roles"][1]["template"]["spec"]["containers"][1]
    container["env"] = [{"name": name, "value": value} for name, value in own.items()]
    found = env_of(run_document(whole, "one", 1, PLAN))
    assert (found["OMP_NUM_THREADS"], found["HOME"], found["KOMPAKT_PROFILE"]) == ("8", "/tmp", "synthetic,5,20")


def test_own_edges_are_for_the_whole_job() -> None:
    edges = {"scope": "Pod", "edges": [{"from": 0, "to": 3}]}
    found = run_document(manifest(communication={"pattern": "Custom", "customEdges": edges}), "one", 1, PLAN)
    assert "communication" not in found["spec"]
    parse_job(found)


@pytest.mark.parametrize(
    ("document", "sentence"),
    [
        ({"kind": "Job"}, "0 objects of kind TrainingJob; expected one"),
        (manifest(injection="Never"), "without the start-up hook nothing can be timed"),
        (manifest(managedBy="other.io/it"), "such a job is not run by kompakt"),
        (manifest(roles=[manifest()["spec"]["roles"][1] | {"name": name} for name in "ab"]), "2 roles have GPUs"),
        (manifest(suspended=True), "suspended: unknown field"),
    ],
)
def test_a_manifest_that_cannot_be_profiled_is_refused(tmp_path: Path, document: dict[str, Any], sentence: str) -> None:
    (tmp_path / "job.yaml").write_text(json.dumps(document))
    with pytest.raises(InvalidInput, match=sentence):
        read_manifest(str(tmp_path / "job.yaml"))


@given(text=st.text() | st.from_regex(r"kind: TrainingJob\nmetadata: .*\nspec: .*", fullmatch=True))
def test_any_text_is_a_manifest_or_a_sentence(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = tmp_path_factory.getbasetemp() / "any.yaml"
    path.write_text(text)
    with pytest.raises(InvalidInput):
        read_manifest(str(path))
