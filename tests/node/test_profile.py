"""`kompakt profile --job`: the example's own manifest, profiled on the GPUs of a real node by jobs of a few steps each."""

import json
import subprocess
import sys
from pathlib import Path

from kompakt_core import contract
from tools.kube.demo import TRAINER
from tools.kube.images import ROOT, TRAINER_FOLDER
from tools.kube.kubectl import await_state


def jobs(kompakt):
    """The names of all TrainingJobs: other tests of the run have left some."""
    return {job["metadata"]["name"] for job in kompakt.kubectl.items("trainingjobs")}


def test_a_manifest_is_profiled_in_the_cluster_and_its_profile_fits_the_job(kompakt, tmp_path):
    before = jobs(kompakt)
    manifest = tmp_path / "job.yaml"
    text = (ROOT / TRAINER_FOLDER / "job.yaml").read_text().replace(TRAINER, kompakt.images.names["kompakt-digits"])
    manifest.write_text(text.replace("bandwidthSensitivity: High", "bandwidthSensitivity: Auto"))
    command = [Path(sys.executable).parent / "kompakt", "profile", "--job", manifest, "--kubeconfig", kompakt.cluster.kubeconfig]
    done = subprocess.run([*command, "--steps", "8", "--warm-up", "2", "-o", "json"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    runs = told["runs"]
    assert (list(runs), told["devices"], told["gpus"], told["machine"] in kompakt.machines) == (
        ["one", "all", "warm"],
        2,
        4,
        True,
    )
    assert (runs["one"]["ranks"], runs["all"]["ranks"], runs["warm"]["ranks"]) == (1, 2, 2)
    assert runs["one"]["gradient_bytes"] == runs["all"]["gradient_bytes"] == 4 * 47_562, (
        "32-bit gradients of the example's network"
    )
    assert told["stalls"]["interconnect"]["seconds"] == runs["all"]["step_seconds"] - runs["one"]["step_seconds"]
    assert told["stalls"]["prep"] is not None
    assert jobs(kompakt) <= before, "the measured runs are gone"

    note = f"{contract.ANN_PROFILE}={done.stdout}"
    annotated = kompakt.kubectl("annotate", "--local", f"--filename={manifest}", "--output=yaml", note)
    kompakt.kubectl.apply(annotated.replace("name: digits", "name: profiled", 1))
    await_state(
        lambda: "profile" in kompakt.kubectl.get("trainingjob", "profiled").get("status", {}), "its profile in the status", 60
    )
    profile = kompakt.kubectl.get("trainingjob", "profiled")["status"]["profile"]
    assert (profile["source"], profile["gradientBytes"], "interconnect" in profile["stalls"]) == ("Annotation", 4 * 47_562, True)
    kompakt.kubectl("delete", "trainingjob", "profiled", "--timeout=60s")
