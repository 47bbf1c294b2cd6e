"""Two ranks under gloo with compiled code inside or around DDP, and inside of what FSDP2 shards: what packs, ranks agree."""

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

try:
    from torch.distributed.fsdp import fully_shard
except ImportError:
    pytest.skip(f"torch {torch.__version__} has no FSDP2 of this name yet", allow_module_level=True)

from tests.support.runtime.compiling import compiled, dividing
from tests.support.runtime.small_training import compressing, train_step
from tests.support.runtime.two_ranks import collectives, in_two_ranks


class Network(nn.Module):
    """Not of torch's own classes alone: around DDP the compiler leaves these as they are."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(32, 64), nn.Linear(64, 32), nn.GELU()) for _ in range(2))
        self.head = nn.Linear(32, 4)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def inside_ddp() -> nn.Module:
    return DistributedDataParallel(compiled(Network()))


def around_ddp() -> nn.Module:
    return compiled(DistributedDataParallel(Network()))


def inside_fsdp() -> nn.Module:
    model, mesh = Network(), init_device_mesh("cpu", (2,))
    for block in model.blocks:
        block.compile(backend=dividing())
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def eager() -> nn.Module:
    return DistributedDataParallel(Network())


HOW: dict[str, Callable[[], nn.Module]] = {"inside DDP": inside_ddp, "around DDP": around_ddp, "inside FSDP2": inside_fsdp}


def train(rank: int, make: Callable[[], nn.Module], mode: str | None) -> tuple[dict, int, dict]:
    """Gradients of the last of five steps, how many collectives all took, and what the runtime counted."""
    with compressing(mode) as session:
        model, before = make(), collectives()
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
        for step in range(5):
            x = torch.randn(16, 32, generator=torch.Generator().manual_seed(2 * step + rank))
            train_step(model, optimizer, x)
    names = {name.replace("_orig_mod.", "").removeprefix("module."): weight for name, weight in model.named_parameters()}
    gradients = {name: whole(weight.grad) for name, weight in names.items()}
    counted = {"layers": sorted(session.figures.layers), "raw": dict(session.figures.raw)} if session else {}
    return gradients, collectives() - before, counted


def whole(gradient: torch.Tensor) -> list:
    """As numbers: a tensor cannot outlive the process that hands it over."""
    return (gradient.full_tensor() if isinstance(gradient, DTensor) else gradient).tolist()


def work(rank: int) -> dict:
    found = {"eager": train(rank, eager, None)}
    for name, make in HOW.items():
        torch._dynamo.reset()
        found[name] = train(rank, make, "ErrorBounded")
        torch._dynamo.reset()
        found[f"{name}, plain"] = train(rank, make, None)
    return found


def off(ours: list, plain: list) -> float:
    wanted = torch.tensor(plain)
    return float((torch.tensor(ours) - wanted).norm() / wanted.norm())


@pytest.fixture(scope="module")
def ranks(tmp_path_factory) -> list[dict]:
    return in_two_ranks(work, tmp_path_factory.mktemp("ranks"))


@pytest.mark.parametrize("how", HOW)
def test_gradients_are_within_their_bounds_and_ranks_agree(ranks, how):
    plain, ours, theirs = ranks[0]["eager"][0], ranks[0][how][0], ranks[1][how][0]
    assert ours.keys() == plain.keys()
    assert ours == theirs
    assert 0 < max(off(ours[name], plain[name]) for name in plain) < 0.05
    assert ranks[0][how][1] == ranks[1][how][1] == ranks[0][f"{how}, plain"][1], "a collective was added"


@pytest.mark.parametrize("how", HOW)
def test_the_same_layers_pack(ranks, how):
    for rank in ranks:
        counted = rank[how][2]
        assert {"blocks.0.1", "blocks.1.1"} <= set(counted["layers"])
        assert not [reason for reason in counted["raw"] if "Failed" in reason or "NoParameter" in reason]
