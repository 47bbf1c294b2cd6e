"""`kompakt profile --job`: the example's own manifest, profiled on the GPUs of real nodes by jobs of a few steps each."""

import json
import subprocess
import sys
from pathlib import Path

import yaml

from kompakt_core import contract
from tests.support.turns import in_turn
from tools.kube.demo import TRAINER
from tools.kube.images import ROOT, TRAINER_FOLDER
from tools.kube.kubectl import await_state


def jobs(kompakt):
    """The names of all TrainingJobs: other tests of the run have left some."""
    return {job["metadata"]["name"] for job in kompakt.kubectl.items("trainingjobs")}


@in_turn(0)
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
    assert (list(runs), told["devices"], told["gpus"]) == (["one", "all", "warm", "halves"], 2, 4), told["notes"]
    assert told["machine"] in kompakt.machines
    assert {mode: run["ranks"] for mode, run in runs.items()} == {"one": 1, "all": 2, "warm": 2, "halves": 2}
    assert runs["one"]["gradient_bytes"] == runs["all"]["gradient_bytes"] == 4 * 47_562, (
        "32-bit gradients of the example's network"
    )
    assert told["stalls"]["interconnect"]["seconds"] == runs["all"]["step_seconds"] - runs["one"]["step_seconds"]
    assert told["stalls"]["prep"] is not None
    network = told["stalls"]["network"]
    assert network["seconds"] == runs["halves"]["step_seconds"] - runs["all"]["step_seconds"], "two pods on two nodes, by gloo"
    assert jobs(kompakt) <= before, "the measured runs are gone"

    note = f"{contract.ANN_PROFILE}={done.stdout}"
    annotated = yaml.safe_load(kompakt.kubectl("annotate", "--local", f"--filename={manifest}", "--output=yaml", note))
    annotated["metadata"]["name"] = "profiled"
    # On no node, or steps of its own would soon count in place of the annotation.
    annotated["spec"]["roles"][0]["template"]["spec"]["nodeSelector"] = {"no-node-has": "this"}
    kompakt.kubectl.apply(yaml.safe_dump(annotated))
    await_state(
        lambda: "profile" in kompakt.kubectl.get("trainingjob", "profiled").get("status", {}), "its profile in the status", 60
    )
    profile = kompakt.kubectl.get("trainingjob", "profiled")["status"]["profile"]
    assert (profile["source"], profile["gradientBytes"], "interconnect" in profile["stalls"]) == ("Annotation", 4 * 47_562, True)
    kompakt.kubectl("delete", "trainingjob", "profiled", "--timeout=60s")


# Reads a file of a megabyte for each sample; the files are made before torch, and so the start-up hook, comes up.
SCRIPT = """
mkdir -p /tmp/data
for i in $(seq 160); do head -c 1000000 /dev/urandom > /tmp/data/$i; done
cat > /tmp/train.py <<'END'
import torch
from torch.utils.data import DataLoader, Dataset

class Files(Dataset):
    def __len__(self):
        return 160
    def __getitem__(self, index):
        with open(f"/tmp/data/{index + 1}", "rb") as file:
            return torch.frombuffer(bytearray(file.read()), dtype=torch.uint8)[:8].float() / 255

model = torch.nn.Linear(8, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for batch in DataLoader(Files(), batch_size=8):
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()
END
exec torchrun /tmp/train.py
"""


@in_turn(1)
def test_files_leave_the_page_cache_of_the_node_before_the_cold_run(kompakt, tmp_path):
    (document,) = yaml.safe_load_all((ROOT / TRAINER_FOLDER / "job.yaml").read_text())
    role = document["spec"]["roles"][0] | {"replicas": 1, "gpusPerReplica": 1}
    container = role["template"]["spec"]["containers"][0]
    container |= {"image": kompakt.images.names["kompakt-digits"], "command": ["sh", "-ec", SCRIPT]}
    document["spec"] |= {"roles": [role]}
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(document))
    command = [Path(sys.executable).parent / "kompakt", "profile", "--job", tmp_path / "job.yaml", "--data", "/tmp/data"]
    words = ["--kubeconfig", kompakt.cluster.kubeconfig, "--steps", "12", "--warm-up", "4", "-o", "json"]
    done = subprocess.run([*command, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert list(told["runs"]) == ["all", "cold", "warm"]
    assert told["stalls"]["fetch"]["seconds"] == told["runs"]["cold"]["step_seconds"] - told["runs"]["warm"]["step_seconds"]
    assert not [note for note in told["notes"] if "page cache" in note], "an unprivileged pod emptied it of its own files"
