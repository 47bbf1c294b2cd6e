"""Compiled graphs where gradients branch: residual paths beside dropout, products of attention, layers in one product."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from kompakt_runtime.codec.format import LOSSY
from kompakt_runtime.compiled import rewriting
from kompakt_runtime.compiled.graphs import base_of, outputs
from tests.support.runtime.compiled_models import off, rows, trained
from tests.support.runtime.compiling import compiled

pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")
WIDTH = 32


class NormedAfter(nn.Module):
    """As in BERT: dropout in front of each sum, a norm behind it."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last = nn.Linear(16, WIDTH), nn.Linear(WIDTH, 8)
        self.inner = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.norms = nn.ModuleList(nn.RMSNorm(WIDTH) for _ in range(3))

    def forward(self, x):
        h = self.first(x)
        for inner, norm in zip(self.inner, self.norms, strict=True):
            h = norm(h + F.dropout(inner(h), 0.1))
        return self.last(h)


class NormedBefore(NormedAfter):
    """As in GPT-2: the sum goes on as it is."""

    def forward(self, x):
        h = self.first(x)
        for inner, norm in zip(self.inner, self.norms, strict=True):
            h = h + F.dropout(inner(norm(h)), 0.1)
        return self.last(h)


class WrittenOut(nn.Module):
    """Attention as products, and a softmax that half of its numbers go through."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.query, self.key, self.value, self.out = (nn.Linear(16, WIDTH) for _ in range(4))
        self.out = nn.Linear(WIDTH, 16)

    def heads(self, x):
        return [one(x).unflatten(-1, (2, 16)).transpose(1, 2) for one in (self.query, self.key, self.value)]

    def forward(self, x):
        query, key, value = self.heads(x)
        shares = F.dropout((query @ key.mT / 4).softmax(-1), 0.5)
        return self.out((shares @ value).transpose(1, 2).flatten(2))


class InOneProduct(WrittenOut):
    """One layer makes queries, keys and values."""

    def __init__(self) -> None:
        super().__init__()
        self.query = self.key = self.value = None
        self.all = nn.Linear(16, 3 * WIDTH)

    def heads(self, x):
        return [one.unflatten(-1, (2, 16)).transpose(1, 2) for one in self.all(x).split(WIDTH, dim=-1)]


class Rotated(WrittenOut):
    """Halves of queries and keys are put beside each other turned: their gradients stand in a sum with what they are part of."""

    def heads(self, x):
        query, key, value = super().heads(x)
        return [turned(query), turned(key), value]


def turned(x):
    angles = torch.arange(x.shape[-2])[:, None] / (1 + torch.arange(x.shape[-1]))
    first, second = x.chunk(2, dim=-1)
    return x * angles.cos() + torch.cat((-second, first), dim=-1) * angles.sin()


MODELS = {"after": NormedAfter, "before": NormedBefore, "written": WrittenOut, "together": InOneProduct, "rotated": Rotated}


def batch(seed: int) -> torch.Tensor:
    """The same numbers are dropped in each way of training."""
    torch.manual_seed(seed)
    return rows(seed=seed)


@pytest.fixture
def left(monkeypatch):
    """Names of what is handed over as it is, by graph, with shapes: numbers that could be packed, not the input itself."""
    found = []
    say_beside = rewriting._say_beside

    def watched(forward, results):
        every = [one for one in outputs(forward)[results:] if isinstance(one.meta.get("val"), torch.Tensor)]
        made = [one for one in every if base_of(one).op != "placeholder" and one.target not in rewriting.PACKS]
        large = [one for one in made if one.meta["val"].dtype in LOSSY and one.meta["val"].numel() >= 32 * 6 * 6]
        found.append({one.name: tuple(one.meta["val"].shape) for one in large})
        return say_beside(forward, results)

    monkeypatch.setattr(rewriting, "_say_beside", watched)
    return found


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
def test_all_that_is_large_is_packed(running, left, make):
    running()
    trained(compiled(make()), batch=batch, steps=1)
    assert left == [{}]


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
def test_gradients_are_off_by_about_as_much_as_without_the_compiler(running, make):
    plain = trained(make(), batch=batch)
    eager = running()
    allowed = off(trained(make(), batch=batch), plain)
    eager.stop()
    session = running()
    error = off(trained(compiled(make()), batch=batch), plain)
    assert 0 < error < 2 * allowed
    assert all(one.bound is not None for one in session.hooks.operations)
    assert session.figures.violations == 0 < session.figures.checked
    assert not [reason for reason in session.figures.raw if "Failed" in reason]
