"""`kompakt profile` from command to table: an unchanged script on one and two processes, timed by the start-up hook."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

# Each sample takes a hundredth of a second to prepare, each batch so a tenth: more than all else of a step.
SCRIPT = """
import os, sys, time, torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

class Slow(Dataset):
    def __len__(self):
        return 400
    def __getitem__(self, index):
        time.sleep(0.01)
        return torch.randn(8), index % 2

if os.environ.get("WORLD_SIZE", "1") != "1":
    torch.distributed.init_process_group("gloo")
model = nn.Linear(8, 2)
if torch.distributed.is_initialized():
    model = nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
try:
    for epoch in range(int(sys.argv[1])):
        for x, y in DataLoader(Slow(), batch_size=10):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
finally:
    open(sys.argv[2], "w").close()  # as a script that saves its model however it ends
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(SCRIPT)
    return tmp_path / "train.py"


def kompakt_profile(*words: str) -> "subprocess.CompletedProcess[str]":
    command = Path(sys.executable).parent / "kompakt"
    return subprocess.run([command, "profile", *words], capture_output=True, text=True, check=False)


# Each run loads torch in three processes: minutes on a busy machine. So one run shows many things.
@pytest.mark.timeout(1800)
def test_a_script_is_timed_and_its_stalls_are_told(script: Path, tmp_path: Path) -> None:
    saved = tmp_path / "model"
    words = ["--devices", "2", "--steps", "8", "--warm-up", "2", "--data", str(script), "--machine", "box", "-o", "json"]
    done = kompakt_profile(*words, "--", sys.executable, str(script), "1", str(saved))
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    runs = told["runs"]
    assert list(runs) == ["one", "all", "cold", "warm"]
    assert (runs["one"]["ranks"], runs["all"]["ranks"], told["machine"], told["devices"]) == (1, 2, "box", 2)
    assert runs["one"]["gradient_bytes"] == runs["all"]["gradient_bytes"] == 4 * (8 * 2 + 2)
    for mode in ("cold", "warm"):
        assert 0.1 <= runs[mode]["data_seconds"] <= runs[mode]["step_seconds"], "ten samples of a hundredth of a second"
    for mode in ("one", "all"):
        assert runs[mode]["data_seconds"] < 0.05, "data from memory are not waited for"
        assert len(runs[mode]["parts"]) == 4
    prep = told["stalls"]["prep"]
    assert prep["seconds"] == pytest.approx(runs["warm"]["step_seconds"] - runs["all"]["step_seconds"])
    assert told["stalls"]["interconnect"]["of"] == "all"
    assert told["stalls"]["network"] is None
    assert not saved.exists(), "a profile is no training: nothing is saved"


@pytest.mark.timeout(900)
def test_a_script_that_takes_too_few_steps_or_fails_is_told(script: Path, tmp_path: Path) -> None:
    done = kompakt_profile("--devices", "1", "--steps", "80", "--", sys.executable, str(script), "1", str(tmp_path / "model"))
    assert done.returncode == 2
    assert "the script ended after 40 optimizer steps; 85 are needed (--warm-up 5 and --steps 80)" in done.stderr
    done = kompakt_profile("--devices", "1", "--", sys.executable, str(script), "many", str(tmp_path / "model"))
    assert done.returncode == 2
    assert "the script failed after 0 optimizer steps" in done.stderr
    assert "invalid literal for int() with base 10: 'many'" in done.stderr
