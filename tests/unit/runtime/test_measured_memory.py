"""What a measured step looks at, it looks at in parts: beside the tensors that it must have it needs a few percent."""

import pytest
import torch

from benchmarks.memory import peak_of
from kompakt_runtime.bounds import nonlinear
from kompakt_runtime.saved.compare import differences
from kompakt_runtime.saved.entry import SavedStorage
from kompakt_runtime.saved.noise import Noise, slices
from tests.support.runtime.tensors import normal

CPU = torch.device("cpu")
TYPES = [torch.float32, torch.bfloat16]


def tensor(dtype: torch.dtype) -> torch.Tensor:
    return normal(1024, 1024).relu().to(dtype)


def share(action, t: torch.Tensor) -> float:
    """The most that was live in it, in sizes of the tensor."""
    return peak_of(action, CPU) / t.nbytes


@pytest.mark.parametrize("dtype", TYPES)
def test_comparing_a_copy_that_is_there_needs_little(dtype):
    t = tensor(dtype)
    entry, copy = SavedStorage(t), t.flatten().clone()
    assert entry.compress(t, 0.1)
    assert share(lambda: differences(entry, [(0, copy)], t.flatten()), t) < 0.1


def test_every_part_is_compared():
    t = tensor(torch.float32)
    entry = SavedStorage(t)
    assert entry.compress(t, 0.1)
    for place in (0, 500_000, t.numel() - 1):
        copy = t.flatten().clone()
        copy[place] += 0.25
        wrong, largest = differences(entry, [(0, copy[:300_000]), (300_000, copy[300_000:])], t.flatten())
        assert (wrong, largest) == (1, pytest.approx(0.25, rel=1e-3))


@pytest.mark.parametrize("dtype", TYPES)
def test_noise_needs_the_noisy_copy_and_little_more(dtype):
    t, noise = tensor(dtype), Noise()
    noise._bounds = {"handle": 0.25}  # type: ignore[dict-item]
    assert share(lambda: noise.added("handle", t), t) < 1.15
    moved = (noise.added("handle", t) - t).double()
    assert (moved[t == 0] == 0).all()
    assert moved.abs().max() <= 0.25 * (1 + 2**-6)
    assert float(moved[t != 0].square().mean()) == pytest.approx(0.25**2 / 3, rel=0.02)


@pytest.mark.parametrize("dtype", TYPES)
def test_what_noise_did_is_summed_with_little_room(dtype):
    a, b = tensor(dtype), tensor(dtype) * 2
    assert share(lambda: nonlinear._moved(a, b), a) < 0.1
    assert float(nonlinear._moved(a, b)) == pytest.approx(float(a.double().square().sum()), rel=1e-3)


@pytest.mark.parametrize(
    ("device", "elements", "parts"), [("cpu", 1 << 22, 64), ("meta", 1 << 22, 1), ("meta", 1 << 25, 8), ("meta", 1 << 30, 64)]
)
def test_parts_are_larger_where_each_operation_is_a_launch(device, elements, parts):
    found = slices(torch.empty(elements // 1024, 1024, device=device, dtype=torch.bfloat16))
    assert len(found) == parts
    assert sum(part.numel() for part in found) == elements
