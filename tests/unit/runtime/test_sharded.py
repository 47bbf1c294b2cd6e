"""Two ranks under gloo whose parameters are sharded by FSDP2: the whole weight exists only while a module runs."""

from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor
from torch.nn import functional as F

try:
    from torch.distributed.fsdp import fully_shard
except ImportError:
    pytest.skip(f"torch {torch.__version__} has no FSDP2 of this name yet", allow_module_level=True)

from tests.support.runtime.small_training import compressing, train_step
from tests.support.runtime.two_ranks import collectives, in_two_ranks

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


class Guises(nn.Module):
    """Feeds whole weights, trained and frozen ones, into operations whose inputs are packed: as they are, in part, detached."""

    def __init__(self) -> None:
        super().__init__()
        self.trained, self.frozen = nn.Parameter(torch.randn(64, 32)), nn.Parameter(torch.randn(64, 32), requires_grad=False)
        self.line, self.norm = nn.Linear(32, 32), nn.LayerNorm(32)

    def forward(self, x):
        for weight in (self.trained, self.frozen):
            for guise in (weight, weight.detach()):
                x = x + self.line(guise[:1]) + F.gelu(guise[1:2]) + self.norm(guise.view(-1)[:32]) + F.linear(x, guise[:32])
        return self.line(x)


def gathered(rank: int) -> dict:
    """How often a storage of a whole parameter was put on the books, and how often one was there to be."""
    torch.manual_seed(0)
    model = fully_shard(nn.Sequential(fully_shard(Guises(), mesh=(mesh := init_device_mesh("cpu", (2,)))), nn.ReLU()), mesh=mesh)
    booked, there = [], []

    def watched(t):
        whole = {weight.untyped_storage()._cdata for weight in model.parameters() if not isinstance(weight, DTensor)}
        there.append(len(whole))
        if t.untyped_storage()._cdata in whole:
            booked.append(list(t.shape))
        return entry(t)

    with compressing(activation_gradients="Bounded") as session:
        entry, session.hooks.ledger.entry = session.hooks.ledger.entry, watched
        for _ in range(2):
            model(torch.randn(8, 32)).square().sum().backward()
    return {"booked": booked, "there": max(there), "packed": sorted(session.figures.layers), "raw": dict(session.figures.raw)}


def bounds_of_norms(rank: int) -> list[dict]:
    """After each step, of norms in a sharded block."""
    torch.manual_seed(0)
    model = fully_shard(nn.Sequential(nn.Linear(32, 32), nn.LayerNorm(32), nn.Linear(32, 4)), mesh=init_device_mesh("cpu", (2,)))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-5, momentum=0.9)
    found = []
    with compressing(activation_gradients="Bounded") as session:
        for step in range(3):
            torch.manual_seed(10 * step + rank)
            train_step(model, optimizer, torch.randn(256, 32))
            found.append({operation.name: operation.bound for operation in session.hooks.operations})
    return found


def first_bounds(parts: int) -> dict[str, float]:
    """After one step of so many equal batches."""
    model = network()
    with compressing() as session:
        for _ in range(parts):
            torch.manual_seed(7)
            (model(torch.randn(64, 32)).square().sum() / parts).backward()
        torch.optim.SGD(model.parameters(), lr=1e-4).step()
    return {site.name: site.bound for site in session.sites._sites.values()}  # type: ignore[misc]


def train(rank: int, mode: str | None) -> dict:
    """Gradients of the last step as whole tensors, how many collectives all steps took, and what the runtime counted."""
    model = network()
    before = collectives()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)
    with compressing(mode) as session:
        for step in range(STEPS):
            optimizer.zero_grad()
            for part in range(MICRO):
                torch.manual_seed(100 * step + 10 * part + rank)
                (model(torch.randn(64, 32)).square().sum() / MICRO).backward()
            optimizer.step()
    found: dict[str, Any] = {"collectives": collectives() - before}
    found["gradients"] = {name: weight.grad.full_tensor().tolist() for name, weight in model.named_parameters()}
    if session:
        rows = {name: (row.bound, row.sigma) for name, row in session.figures.layers.items() if row.bound is not None}
        found |= {"layers": rows, "raw": dict(session.figures.raw), "violations": session.figures.violations}
    return found


def work(rank: int) -> dict:
    found = {mode: train(rank, mode) for mode in (None, "Lossless", "ErrorBounded")}
    first = {parts: first_bounds(parts) for parts in (1, 4)}
    return {**found, "gathered": gathered(rank), "norms": bounds_of_norms(rank), "first": first}


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


def test_whole_weights_are_never_packed_in_whatever_guise(ranks):
    for rank in ranks:
        assert rank["gathered"]["there"] > 0
        assert rank["gathered"]["booked"] == []
        assert "0.line" in rank["gathered"]["packed"], "what is no weight is packed"
        assert not [reason for reason in rank["gathered"]["raw"] if "Failed" in reason]


def test_norms_are_judged_after_each_measured_step_as_elsewhere(ranks):
    """By the momentum of their shard: three measured steps in a row, so the bounds grow twice."""
    for rank in ranks:
        first, second, third = (step["1 [norm]"] for step in rank["norms"])
        assert 0 < 1.5 * first < second < third


def test_backward_passes_of_one_step_add_up_on_shards(ranks):
    """Equal batches, each with a quarter of the loss: four quarters of sum(delta²) are a quarter, and the gradient known here is
    that of the last. Were only the last pass counted, the bound would be that of one batch, twice as wide.
    """
    for rank in ranks:
        assert rank["first"][4] == pytest.approx({name: bound / 2 for name, bound in rank["first"][1].items()}, rel=0.05)
