"""Masks of compiled code are kept in one bit an element; gradients are the compiler's own, bit by bit."""

from functools import partial

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from kompakt_runtime.compiled import masks
from tests.support.runtime.compiling import dividing

MINIMUM = 512


class Dropouts(nn.Module):
    def __init__(self, width: int = 64) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.one, self.two = nn.Linear(16, width), nn.Linear(width, 8)

    def forward(self, x):
        return self.two(F.dropout(self.one(x).tanh(), 0.3))


class Pictures(nn.Module):
    """Masks lie in memory with their channels innermost."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.one, self.two = nn.Conv2d(3, width, 3), nn.Conv2d(width, 4, 3)
        self.to(memory_format=torch.channels_last)

    def forward(self, x):
        return self.two(F.dropout(self.one(x).sigmoid(), 0.3))


def rows(seed: int) -> torch.Tensor:
    return torch.randn(32, 6, 16, generator=torch.Generator().manual_seed(seed))


def any_rows(seed: int) -> torch.Tensor:
    return rows(seed)[: 32 - 4 * (seed % 3)]


def pictures(seed: int) -> torch.Tensor:
    drawn = torch.randn(8, 3, 12, 12, generator=torch.Generator().manual_seed(seed))
    return drawn.to(memory_format=torch.channels_last)


def types_kept(loss: torch.Tensor) -> dict[torch.dtype, int]:
    """Elements that compiled code keeps for the backward pass, of masks and bits, by type."""
    found: dict[torch.dtype, int] = {}
    ahead = [loss.grad_fn]
    for node in ahead:
        ahead += [behind for behind, _ in node.next_functions if behind is not None and behind not in ahead]
        if "CompiledFunction" in node.name():
            for kept in node.saved_tensors:
                found[kept.dtype] = found.get(kept.dtype, 0) + kept.numel()
    return {dtype: count for dtype, count in found.items() if dtype in (torch.bool, torch.uint8)}


def trained(model, batch=rows, steps: int = 3) -> tuple[list[torch.Tensor], dict[torch.dtype, int]]:
    """Gradients of the last step, and what it kept."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    for step in range(steps):
        optimizer.zero_grad()
        torch.manual_seed(step)
        loss = model(batch(step)).square().mean()
        kept = types_kept(loss)
        loss.backward()
        optimizer.step()
    return [weight.grad.clone() for weight in model.parameters()], kept


CASES = {
    "rows": (Dropouts, rows, 32 * 6 * 64),
    "other sizes": (Dropouts, any_rows, 24 * 6 * 64),
    "channels last": (Pictures, pictures, 8 * 16 * 10 * 10),
    "rows of no whole bytes": (partial(Dropouts, 60), rows, 32 * 6 * 60),
    "such rows, other sizes": (partial(Dropouts, 60), any_rows, 24 * 6 * 60),
    "such channels last": (partial(Pictures, 12), pictures, 8 * 12 * 10 * 10),
}


@pytest.mark.parametrize(("make", "batch", "elements"), CASES.values(), ids=CASES)
def test_masks_are_kept_as_bits_and_gradients_are_the_compilers_own(running, make, batch, elements):
    plain, before = trained(torch.compile(make(), backend=dividing(minimum=1 << 40)), batch)
    assert before == {torch.bool: elements}
    running(mode="Lossless")
    ours, kept = trained(torch.compile(make(), backend=dividing(minimum=MINIMUM, lossy=False)), batch)
    assert kept == {torch.uint8: elements // 8}
    assert all(torch.equal(a, b) for a, b in zip(ours, plain, strict=True))


def test_beside_values_that_are_packed_they_are_bits_too(running):
    session = running()
    _, kept = trained(torch.compile(Dropouts(), backend=dividing(minimum=MINIMUM)))
    assert kept == {torch.uint8: 32 * 6 * 64 // 8}
    assert session.figures.compressed > 0
    assert not [reason for reason in session.figures.raw if "Failed" in reason]


def odd_rows(seed: int) -> torch.Tensor:
    return rows(seed)[:31, :5]


@pytest.mark.parametrize(("width", "batch", "elements"), [(4, rows, 32 * 6 * 4), (61, odd_rows, 31 * 5 * 61)])
def test_small_masks_and_those_of_no_whole_bytes_stay(running, width, batch, elements):
    running(mode="Lossless")
    _, kept = trained(torch.compile(Dropouts(width), backend=dividing(minimum=1024, lossy=False)), batch)
    assert kept == {torch.bool: elements}


class HandedOut(nn.Module):
    """The caller has the mask as well, or gave it: bits beside it would only cost."""

    def __init__(self, given: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.one, self.given = nn.Linear(16, 64), given

    def forward(self, x, mask):
        h = self.one(x)
        mask = mask if self.given else h.detach() > 0
        return (h.sin() * mask).sum(), mask


@pytest.mark.parametrize("given", [True, False])
def test_masks_that_others_have_stay(running, given):
    running(mode="Lossless")
    model = torch.compile(HandedOut(given), backend=dividing(minimum=MINIMUM, lossy=False))
    loss, _ = model(rows(0), torch.rand(32, 6, 64) > 0.5)
    assert types_kept(loss) == {torch.bool: 32 * 6 * 64}
    loss.backward()


@pytest.mark.parametrize("mode", ["Lossless", "ErrorBounded"])
def test_the_compilers_own_code_keeps_bits(running, mode):
    """By inductor, which fuses them into its kernels."""
    torch._dynamo.reset()
    plain, before = trained(torch.compile(Dropouts()))
    torch._dynamo.reset()
    session = running(mode=mode, min_tensor_bytes=MINIMUM)
    ours, kept = trained(torch.compile(Dropouts()))
    assert before == {torch.bool: 32 * 6 * 64}
    assert kept == {torch.uint8: 32 * 6 * 64 // 8}
    assert (session.figures.compressed > 0) == (mode == "ErrorBounded")
    if mode == "Lossless":
        assert all(torch.equal(a, b) for a, b in zip(ours, plain, strict=True))


def test_the_innermost_session_says_what_is_packed(running):
    """Code that is made after it ended packs by the settings of the session around it."""
    outer, config = running(), torch._inductor.config
    outer._forwards._regions.install()
    around = config.custom_partitioner_fn.uuid()
    inner = running(mode="Lossless")
    inner._forwards._regions.install()
    assert config.custom_partitioner_fn.uuid() != around
    inner.stop()
    assert config.custom_partitioner_fn.uuid() == around
    outer.stop()
    assert config.custom_partitioner_fn is None


def test_what_masks_are_divided_by():
    """Only what fills its memory, and whose innermost dimension is known."""
    graph = torch.fx.Graph()
    given = graph.placeholder("given")
    for value, dimension in [
        (torch.ones(4, 16, dtype=torch.bool), 1),
        (torch.ones(16, 5, dtype=torch.bool).t(), masks.FLAT),
        (torch.ones(15, 5, dtype=torch.bool).t(), None),
        (torch.ones(5, 16, dtype=torch.bool).t(), 0),
        (torch.ones(1, 16, dtype=torch.bool).expand(4, 16), None),
        (torch.ones(4, 16), None),
        (torch.ones((), dtype=torch.bool), None),
    ]:
        made = graph.call_function(torch.ops.aten.bitwise_not.default, (given,))
        made.meta["val"] = value
        assert masks.divided_by(made, 0) == dimension
    given.meta["val"] = torch.ones(4, 16, dtype=torch.bool)
    assert masks.divided_by(given, 0) is None
