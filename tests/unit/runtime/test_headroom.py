"""The largest batch that fits, from peaks measured in real training, and inside a running training."""

import mmap

import torch
from torch import nn

from benchmarks.memory import peak_of
from kompakt_runtime.cost import headroom
from kompakt_runtime.cost.batch import Taken, largest_batch
from kompakt_runtime.figures.export import report
from tests.support.runtime.small_training import network, warm_up


def first_peak(batch: int) -> int:
    """Of the first step, which has the highest: bytes above what the network takes itself."""
    torch.manual_seed(0)
    layers = [layer for _ in range(3) for layer in (nn.Conv2d(24, 24, 3, padding=1), nn.ReLU())]
    model = nn.Sequential(nn.Conv2d(3, 24, 3, padding=1), nn.ReLU(), *layers, nn.Flatten(), nn.Linear(24 * 256, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    x = torch.randn(batch, 3, 16, 16)

    def step() -> None:
        model(x).square().mean().backward()
        optimizer.step()

    return peak_of(step, torch.device("cpu"))


def test_measured_peaks_predict_the_largest_batch_that_fits(running):
    running(min_tensor_bytes=65536)
    peaks = {batch: first_peak(batch) for batch in (16, 32, 48, 96)}
    sizes = [Taken(batch, peaks[batch]) for batch in (16, 32, 48)]
    named = largest_batch(sizes, peaks[96]), largest_batch(sizes[-1:], peaks[96])
    print(f"peaks {peaks}; into the last of them fit 96; from three sizes {named[0]}, from one {named[1]}")
    assert 0.95 * 96 <= named[0] <= 96
    assert 0.6 * 96 <= named[1] <= 96
    again = largest_batch([Taken(named[1], first_peak(named[1]))], peaks[96])
    print(f"from one size, measured with what the first one named: {again}")
    assert 0.95 * 96 <= again <= 96


def test_a_training_names_a_batch_from_its_third_step_on(running, monkeypatch):
    # Other tests in this process leave a higher peak than this small network has, and memory that it takes without a trace.
    monkeypatch.setattr(headroom, "held", lambda device: 200 << 20)
    monkeypatch.setattr(headroom, "peak", lambda device: 204 << 20)
    session = running(batch="Suggest")
    warm_up(network(), steps=2)
    assert "suggestedBatch" not in {name for name, value in report(session.figures).items() if value}
    warm_up(network(), steps=1)
    assert session.figures.batch == 8
    # Some 4 MB for eight samples, of the GBs that the machine has.
    monkeypatch.setattr(headroom, "limit", lambda device, environ: headroom.held(device) // 2)
    assert session.figures.suggested_batch > 1000
    warm_up(network(), steps=1)
    assert session.figures.suggested_batch == 0, "into half of what is held now nothing fits"


def test_held_and_peak_follow_what_is_really_taken():
    device, before = torch.device("cpu"), headroom.held(torch.device("cpu"))
    with mmap.mmap(-1, 64 << 20) as block:  # torch's allocator may hand out what an earlier test gave back
        block.write(b"x" * (64 << 20))
        assert headroom.held(device) - before > 60 << 20
    assert headroom.peak(device) >= before + (60 << 20)


def test_the_smallest_limit_of_the_container_counts_and_is_shared_by_its_ranks(tmp_path, monkeypatch):
    files = [tmp_path / name for name in ("two", "one", "none")]
    files[0].write_text("max\n")
    files[1].write_text("1000000\n")
    assert headroom.container_limit(tuple(map(str, files))) == 1_000_000
    assert headroom.container_limit((str(files[0]),)) > 1 << 28
    monkeypatch.setattr(headroom, "LIMITS", tuple(map(str, files)))
    assert headroom.limit(torch.device("cpu"), {"LOCAL_WORLD_SIZE": "4"}) == 250_000
