"""Data loaders' worker processes beside a training with the start-up hook: forked or started anew, they change nothing."""

import sys

import pytest

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
def test_workers_say_nothing_and_count_for_nothing(pod, tmp_path, how):
    (tmp_path / "train.py").write_text(SCRIPT)
    done, words, rows = pod([sys.executable, str(tmp_path / "train.py"), how], KOMPAKT_MIN_TENSOR_BYTES="0")
    assert done.stdout == "trained\n", done.stderr
    assert done.stderr.count("kompakt:") == 1
    assert (words["active"], words["ranks"], words["steps"], words["violations"]) == (True, 1, 6, 0)
    assert len(rows) == 1
