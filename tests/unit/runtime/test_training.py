"""The digits example trained in this process, with and without compression: as accurate, several times smaller.

The slowest test of this package (about 15 s of one core); everything in it needs whole trainings.
"""

import importlib.util
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader

from kompakt_runtime.bounds import observe
from kompakt_runtime.figures.counted import Figures
from tests.support.runtime.small_training import compressing

SEEDS = (0, 1)


@pytest.fixture(scope="module")
def script():
    """The example's train.py, as a module."""
    path = Path(__file__).parents[3] / "examples" / "digits" / "train.py"
    spec = importlib.util.spec_from_file_location("digits_train", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def trained(script, seed: int, mode: str | None = None, epochs: int = 6) -> tuple[float, Figures | None]:
    """Test accuracy in percent, and what the session counted."""
    torch.manual_seed(seed)
    train, test = script.digits()
    model = script.network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
    batches = DataLoader(train, batch_size=64, shuffle=True, drop_last=True)
    with compressing(mode, min_tensor_bytes=65536) as session:
        for _ in range(epochs):
            script.train_epoch(model, batches, optimizer)
        return script.accuracy(model, test), session and session.figures


@pytest.mark.timeout(600)
def test_digits_train_as_well_on_a_fraction_of_the_bytes(script):
    plain = [trained(script, seed)[0] for seed in SEEDS]
    ours, figures = zip(*(trained(script, seed, "ErrorBounded") for seed in SEEDS), strict=True)
    ratios = [row.plain_bytes / row.saved_bytes for row in figures]
    print(f"test accuracy plain {plain}, compressed {ours}; all saved bytes over what was kept: {ratios}")
    # Between seeds alone accuracy differs by 2 to 3 points after so few epochs.
    assert abs(sum(ours) - sum(plain)) / len(SEEDS) < 4
    assert min(ours) > 85
    assert all(row.violations == 0 < row.checked for row in figures)
    # Warm-up steps are in it, and the tensors below 64 KiB.
    assert min(ratios) > 5


@pytest.mark.timeout(600)
def test_a_bound_far_too_large_is_noticed(script, monkeypatch):
    monkeypatch.setattr(observe, "error_bound", lambda average, seen: 300 * seen.magnitude)
    accuracy, _ = trained(script, 0, "ErrorBounded")
    print(f"test accuracy with a bound of 300 times the mean: {accuracy}")
    assert accuracy < 85, "the test above could not fail"
