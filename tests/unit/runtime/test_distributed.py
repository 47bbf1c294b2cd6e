"""Two ranks under gloo: the same gradients, no collective more, and a rank whose codec fails holds nobody up."""

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from kompakt_runtime.saved import entry
from tests.support.runtime.small_training import batch, compressing, train_step
from tests.support.runtime.two_ranks import collectives, in_two_ranks


def network() -> nn.Sequential:
    """With a pool, so that mode Lossless has something to do."""
    torch.manual_seed(0)
    first = (nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))
    return nn.Sequential(*first, nn.Conv2d(8, 8, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(72, 4))


def train(rank: int, mode: str | None, broken: bool) -> tuple[dict[str, list], int, dict]:
    """Gradients of the last of five steps, how many collectives all took, and what the runtime counted."""
    model, before = DistributedDataParallel(network()), collectives()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    with compressing(mode) as session, pytest.MonkeyPatch.context() as patched:
        if broken:
            patched.setattr(entry, "encode", lambda *_, **__: 1 / 0)
        for step in range(5):
            train_step(model, optimizer, batch(2 * step + rank))
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
    counted = [rank["one rank broken"][2] for rank in ranks]
    assert counted[0]["compressed"] > counted[1]["compressed"]
    assert counted[1]["raw"]["EncodeFailedZeroDivisionError"] > 0
