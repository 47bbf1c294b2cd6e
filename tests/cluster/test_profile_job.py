"""`kompakt profile --job` on a real API server: its jobs come and go, and what their pods leave is read. Pods are simulated."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kompakt_cli import profile_jobs
from kompakt_cli.profile_manifest import StepLimits, run_document
from kompakt_core.errors import InvalidInput
from tools.kube.jobs import training_job
from tools.kube.kwok import MESSAGE_ANNOTATION
from tools.kube.session import ClusterSession, eventually

RUN = {
    "processes": 1,
    "stepSeconds": 0.5,
    "parts": [0.5, 0.5, 0.5, 0.5],
    "dataSeconds": 0.1,
    "loaders": 1,
    "gradientBytes": 4096,
    "ranks": 1,
}


def profiled(cluster: ClusterSession, namespace: str, manifest: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    command = [Path(sys.executable).parent / "kompakt", "profile", "--job", manifest, "-n", namespace]
    whole = [*command, "--kubeconfig", cluster.kubeconfig, *words]
    return subprocess.run(whole, capture_output=True, text=True, check=False)


def manifest(folder: Path, *, gpus: int = 1, **said: Any) -> Path:
    """A job of two workers, each of which would leave these words if it were a measured run."""
    words = json.dumps({"kompakt": 1, "run": RUN | said})
    document = training_job("train", replicas=2, gpus=gpus, seconds="0", annotations={MESSAGE_ANNOTATION: words})
    (folder / "job.json").write_text(json.dumps(document))
    return folder / "job.json"


def test_a_job_of_one_gpu_is_profiled_and_nothing_is_left(kompakt: ClusterSession, namespace: str, tmp_path: Path) -> None:
    done = profiled(kompakt, namespace, manifest(tmp_path), "-o", "json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (list(told["runs"]), told["devices"], told["gpus"]) == (["all", "warm"], 1, 2)
    assert told["machine"] in ("dgx-0", "dgx-1", "pcie-0")
    assert told["stalls"]["prep"]["seconds"] == 0
    assert kompakt.custom.list_namespaced_custom_object("kompakt.dev", "v1alpha1", namespace, "trainingjobs")["items"] == []


def test_a_profile_is_handed_to_the_job_that_is_there(kompakt: ClusterSession, namespace: str, tmp_path: Path) -> None:
    path = manifest(tmp_path)
    done = profiled(kompakt, namespace, path, "--annotate")
    assert done.returncode == 2
    assert "404 Not Found" in done.stderr, "told before anything is measured"
    assert "train-profile" not in done.stderr
    waiting = json.loads(path.read_text())
    waiting["spec"]["roles"][0]["template"]["spec"]["nodeSelector"] = {"no-node-has": "this"}
    at = {"group": "kompakt.dev", "version": "v1alpha1", "namespace": namespace, "plural": "trainingjobs"}
    kompakt.custom.create_namespaced_custom_object(**at, body={**waiting, "spec": {**waiting["spec"], "suspend": True}})
    done = profiled(kompakt, namespace, path, "--annotate", "-o", "json")
    assert done.returncode == 0, done.stderr
    found = kompakt.custom.get_namespaced_custom_object(**at, name="train")
    assert json.loads(found["metadata"]["annotations"]["kompakt.dev/profile"]) == json.loads(done.stdout)
    kompakt.custom.patch_namespaced_custom_object(**at, name="train", body={"spec": {"suspend": False}})
    eventually(lambda: "profile" in kompakt.custom.get_namespaced_custom_object(**at, name="train")["status"], "its profile")
    status = kompakt.custom.get_namespaced_custom_object(**at, name="train")["status"]["profile"]
    assert (status["source"], status["stalls"]["prep"]["seconds"]) == ("Annotation", "0")


def test_two_halves_sit_on_two_nodes_and_the_slower_one_counts(kompakt: ClusterSession, namespace: str) -> None:
    """As the run for the network stall. Simulated pods leave what they are told: here the second one other figures."""
    words = [json.dumps({"kompakt": 1, "run": RUN | {"ranks": 2, "stepSeconds": seconds}}) for seconds in (0.5, 0.75)]
    document = training_job("train", gpus=2, seconds="0", annotations={MESSAGE_ANNOTATION: words[0]})
    plan = StepLimits(5, 20, 120.0)
    halves = run_document(document, "halves", 1, plan, "dgx-1")
    halves["spec"]["roles"][1]["template"]["metadata"]["annotations"][MESSAGE_ANNOTATION] = words[1]
    cluster = profile_jobs.ProfilingCluster(str(kompakt.kubeconfig), None, namespace)
    done = profile_jobs.measured(cluster, halves, 1, plan)
    assert (done.run.step_seconds, done.run.ranks, done.run.loaders) == (0.75, 2, 2)
    assert "dgx-1" in done.nodes
    assert len(set(done.nodes)) == 2
    with pytest.raises(InvalidInput, match=r"train-profile-halves: .*node"):
        profile_jobs.measured(cluster, run_document(document, "halves", 1, plan, "no-such-node"), 1, StepLimits(5, 20, 20.0))
    assert kompakt.custom.list_namespaced_custom_object("kompakt.dev", "v1alpha1", namespace, "trainingjobs")["items"] == []


@pytest.mark.parametrize(
    ("fields", "words", "sentence"),
    [
        ({"processes": 2}, (), "train-profile-all: 2 processes took the steps on 1 GPUs; let torchrun read PET_NPROC_PER_NODE"),
        ({"processes": 0, "steps": 7}, (), "the script ended after 7 optimizer steps; 25 are needed"),
        ({"ranks": "many"}, (), "what train-profile-all left.ranks: got 'many'; expected a number from 1 up"),
        ({"gpus": 99, "processes": 1}, (), "train-profile-all: one worker asks for 99 GPUs but the largest node has 8"),
    ],
)
def test_a_run_that_gives_no_figures_says_why_and_is_gone(
    kompakt: ClusterSession, namespace: str, tmp_path: Path, fields: dict[str, Any], words: tuple[str, ...], sentence: str
) -> None:
    done = profiled(kompakt, namespace, manifest(tmp_path, **fields), *words, "--devices", "0")
    assert done.returncode == 2
    assert sentence in done.stderr, done.stderr
    assert kompakt.custom.list_namespaced_custom_object("kompakt.dev", "v1alpha1", namespace, "trainingjobs")["items"] == []
