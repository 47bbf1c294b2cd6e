"""Two ranks under gloo whose parameters are sharded by FSDP2: the whole weight exists only while a module runs."""

import os

import pytest

if "torch" not in os.environ.get("KOMPAKT_REQUIRE", ""):
    pytest.importorskip("torch", reason="torch is not installed: `make sync-torch`")

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

try:
    from torch.distributed.fsdp import fully_shard
except ImportError:
    pytest.skip(f"torch {torch.__version__} has no FSDP2 of this name yet", allow_module_level=True)

from kompakt_runtime.config import Config
from kompakt_runtime.session import Session
from tests.unit.runtime.two_ranks import collectives, in_two_ranks

STEPS = 6
MICRO = 2  # batches before an optimizer step


def network() -> nn.Sequential:
    """Two blocks and a head; each block and the whole are sharded, as FSDP2's users do."""
    torch.manual_seed(0)
    blocks = [nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Dropout(0.25), nn.Linear(32, 32), nn.ReLU()) for _ in range(2)]
    model = nn.Sequential(*blocks, nn.Linear(32, 4))
    mesh = init_device_mesh("cpu", (2,))
    for part in (*blocks, model):
        fully_shard(part, mesh=mesh)
    return model


def train(rank: int, mode: str | None) -> dict:
    """Gradients of the last step as whole tensors, how many collectives all steps took, and what the runtime counted."""
    model = network()
    before = collectives()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)
    session = Session(Config(mode, min_tensor_bytes=0)) if mode else None
    if session:
        session.start()
    try:
        for step in range(STEPS):
            optimizer.zero_grad()
            for part in range(MICRO):
                torch.manual_seed(100 * step + 10 * part + rank)
                (model(torch.randn(64, 32)).square().sum() / MICRO).backward()
            optimizer.step()
    finally:
        if session:
            session.stop()
    taken = collectives() - before
    found = {
        "collectives": taken,
        "gradients": {name: weight.grad.full_tensor().tolist() for name, weight in model.named_parameters()},
    }
    if session:
        rows = {name: (row.bound, row.sigma) for name, row in session.figures.layers.items() if row.bound is not None}
        found |= {"layers": rows, "raw": dict(session.figures.raw), "violations": session.figures.violations}
    return found


def work(rank: int) -> dict:
    return {mode: train(rank, mode) for mode in (None, "Lossless", "ErrorBounded")}


@pytest.fixture(scope="module")
def ranks(tmp_path_factory) -> list[dict]:
    return in_two_ranks(work, tmp_path_factory.mktemp("ranks"))


def test_lossless_gives_the_gradients_of_plain_training_bit_for_bit(ranks):
    for rank in ranks:
        assert rank["Lossless"]["gradients"] == rank[None]["gradients"]


@pytest.mark.parametrize("mode", ["Lossless", "ErrorBounded"])
def test_no_collective_is_added(ranks, mode):
    for rank in ranks:
        assert rank[mode]["collectives"] == rank[None]["collectives"] > 0


def test_every_linear_layer_gets_a_bound_and_keeps_its_target(ranks):
    for rank in ranks:
        layers = rank["ErrorBounded"]["layers"]
        assert layers.keys() == {"0.0", "0.3", "1.0", "1.3", "2"}
        assert all(sigma is None or 0.5 < sigma < 2 for _, sigma in layers.values())
        assert any(sigma is not None for _, sigma in layers.values())
        assert rank["ErrorBounded"]["violations"] == 0
        assert not [reason for reason in rank["ErrorBounded"]["raw"] if "Failed" in reason]


def test_ranks_hold_the_same_gradients(ranks):
    assert ranks[0]["ErrorBounded"]["gradients"] == ranks[1]["ErrorBounded"]["gradients"]
    assert ranks[0]["ErrorBounded"]["gradients"] != ranks[0][None]["gradients"]
