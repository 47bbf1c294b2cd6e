"""Data loaders' worker processes beside a training with the start-up hook: forked or started anew, they change nothing."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

if "torch" not in os.environ.get("KOMPAKT_REQUIRE", ""):
    pytest.importorskip("torch", reason="torch is not installed: `make sync-torch`")

ROOT = Path(__file__).parents[3]
SCRIPT = """
import sys, torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

class Noise(Dataset):
    def __init__(self):
        self.filter = nn.Conv2d(3, 3, 3, padding=1)  # a module in training mode, in the workers
    def __len__(self):
        return 48
    def __getitem__(self, place):
        x = torch.randn(3, 6, 6, generator=torch.Generator().manual_seed(place))
        return self.filter(x[None])[0].detach()

def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.Flatten(), nn.Linear(128, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    for x in DataLoader(Noise(), batch_size=8, num_workers=2, multiprocessing_context=sys.argv[1] or None):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
    print("trained")

if __name__ == "__main__":
    main()
"""


@pytest.mark.timeout(600)
@pytest.mark.parametrize("how", ["fork", "spawn", "forkserver", ""])
def test_workers_say_nothing_and_count_for_nothing(tmp_path, how):
    (tmp_path / "payload").mkdir()
    (tmp_path / "state").mkdir()
    (tmp_path / "log").touch()
    (tmp_path / "train.py").write_text(SCRIPT)
    subprocess.run([ROOT / "runtime" / "assemble", tmp_path / "image"], check=True)
    subprocess.run([tmp_path / "image" / "install", tmp_path / "payload"], check=True)
    environ = {
        "PATH": os.environ["PATH"], "HOME": str(tmp_path), "TMPDIR": str(tmp_path), "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(tmp_path / "payload" / "bootstrap"), "KOMPAKT_MODE": "ErrorBounded", "KOMPAKT_MIN_TENSOR_BYTES": "0",
        "KOMPAKT_STATE_DIR": str(tmp_path / "state"), "KOMPAKT_TERMINATION_LOG": str(tmp_path / "log"),
    }  # fmt: skip
    command = [sys.executable, str(tmp_path / "train.py"), how]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=500, check=False)
    assert (done.returncode, done.stdout) == (0, "trained\n"), done.stderr
    assert done.stderr.count("kompakt:") == 1
    words = json.loads((tmp_path / "log").read_text())
    assert (words["active"], words["ranks"], words["steps"], words["violations"]) == (True, 1, 6, 0)
    assert len(list((tmp_path / "state").glob("figures-*.json"))) == 1
