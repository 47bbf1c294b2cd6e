"""Two ranks under gloo: the same gradients, no collective more, and a rank whose codec fails holds nobody up."""

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from kompakt_runtime import entry
from kompakt_runtime.config import RuntimeConfig
from kompakt_runtime.session import Session
from tests.support.runtime.small_training import batch
from tests.support.runtime.two_ranks import collectives, in_two_ranks

STEPS = 5


def network() -> nn.Sequential:
    """With a pool, so that mode Lossless has something to do."""
    torch.manual_seed(0)
    first = (nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))
    return nn.Sequential(*first, nn.Conv2d(8, 8, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(72, 4))


def train(rank: int, mode: str | None, broken: bool) -> tuple[dict[str, list], int, dict]:
    """Gradients of the last step, how many collectives all steps took, and what the runtime counted."""
    model = DistributedDataParallel(network())
    before = collectives()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    session = Session(RuntimeConfig(mode, min_tensor_bytes=0)) if mode else None
    encode = entry.encode  # type: ignore[attr-defined]
    if broken:
        entry.encode = lambda x, bound: 1 / 0  # type: ignore[attr-defined,misc,assignment]
    if session:
        session.start()
    try:
        for step in range(STEPS):
            optimizer.zero_grad()
            model(batch(2 * step + rank)).square().sum().backward()
            optimizer.step()
    finally:
        entry.encode = encode  # type: ignore[attr-defined]
        if session:
            session.stop()
    gradients = {name: weight.grad.tolist() for name, weight in model.module.named_parameters()}
    counted = {"compressed": session.figures.compressed, "raw": dict(session.figures.raw)} if session else {}
    return gradients, collectives() - before, counted


def work(rank: int) -> dict:
    runs = {"plain": (None, False), "lossless": ("Lossless", False), "lossy": ("ErrorBounded", False)}
    runs["one rank broken"] = ("ErrorBounded", rank == 1)
    return {name: train(rank, *how) for name, how in runs.items()}


@pytest.fixture(scope="module")
def ranks(tmp_path_factory) -> list[dict]:
    return in_two_ranks(work, tmp_path_factory.mktemp("ranks"))


def test_lossless_gives_the_gradients_of_plain_training_bit_for_bit(ranks):
    for rank in ranks:
        assert rank["lossless"][0] == rank["plain"][0]
        assert rank["lossless"][2]["compressed"] > 0


@pytest.mark.parametrize("run", ["lossless", "lossy", "one rank broken"])
def test_ranks_agree_and_no_collective_is_added(ranks, run):
    assert ranks[0][run][0] == ranks[1][run][0]
    assert ranks[0][run][1] == ranks[1][run][1] == ranks[0]["plain"][1] > 0


def test_a_rank_whose_codec_fails_trains_on(ranks):
    assert ranks[0]["one rank broken"][2]["compressed"] > ranks[1]["one rank broken"][2]["compressed"]
    assert ranks[1]["one rank broken"][2]["raw"]["EncodeFailedZeroDivisionError"] > 0
