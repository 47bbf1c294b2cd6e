"""Less memory and the same gradients, bit for bit: masks, window indices, tensors of which only the shape is read."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from kompakt_runtime.compat.hooks import innermost
from kompakt_runtime.hooks import settling
from kompakt_runtime.saved.lossless import PIECE, Window, bool_mask, sign_mask, two_valued, window_indices
from tests.support.runtime.small_training import Holder, compressing, failed
from tests.support.runtime.tensors import DTYPES, same_bits

SPECIAL = torch.tensor([0.0, -0.0, 1.0, -1.0, float("nan"), float("inf"), -float("inf"), 1e-45])


class Functional(nn.Module):
    """Everything inside one forward function, no module for what saves."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.ParameterList(nn.Parameter(torch.randn(s) / 3) for s in ((8, 3, 3, 3), (8, 8, 3, 3)))
        self.head = nn.Parameter(torch.randn(5, 32))

    def forward(self, x):
        x = F.max_pool2d(F.relu(F.conv2d(x, self.weights[0], padding=1)), 3, stride=2, padding=1)
        x = F.dropout(torch.relu_(F.conv2d(x, self.weights[1], padding=1)), 0.3)
        x = torch.max_pool2d(x, 2)
        return F.linear(F.max_pool1d(x.flatten(2), 2).flatten(1), self.head[:, : 8 * (x.shape[2] * x.shape[3] // 2)])


class Shared(nn.Module):
    """One ReLU output read by a pool, a product and a convolution, in that order; another by a shortcut only."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)

    def forward(self, x):
        hidden = torch.relu(self.first(x))
        pooled = F.max_pool2d(hidden, 2)
        x = self.second(hidden * hidden) + self.second(hidden)
        return torch.relu(F.max_pool2d(x, 2) + pooled)


class Frozen(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1), nn.GELU(), nn.Conv2d(8, 4, 3))
        self[1].weight.requires_grad_(False)


def images() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.MaxPool2d(2, ceil_mode=True),
        nn.Conv2d(8, 8, 3, padding=1), nn.MaxPool2d(3, 2, 1), nn.ReLU(), nn.Dropout(0.2), nn.Flatten(), nn.Linear(72, 4),
    )  # fmt: skip


NETS = {
    "images": (images, (4, 3, 11, 11)),
    "functional": (Functional, (4, 3, 12, 12)),
    "shared": (Shared, (4, 3, 8, 8)),
    "frozen": (Frozen, (4, 3, 8, 8)),
    "volumes": (lambda: nn.Sequential(nn.Conv3d(2, 4, 3), nn.ReLU(), nn.MaxPool3d(2), nn.ReLU()), (2, 2, 8, 8, 8)),
    "sequences": (lambda: nn.Sequential(nn.Conv1d(2, 4, 3), nn.MaxPool1d(3), nn.Dropout1d(0.3), nn.ReLU()), (4, 2, 20)),
    "text": (lambda: nn.TransformerEncoderLayer(16, 4, 32, batch_first=True, activation="relu"), (4, 6, 16)),
}


def gradients(kind: str, mode: str | None, channels_last: bool = False, **settings) -> tuple[dict[str, torch.Tensor], Any]:
    make, shape = NETS[kind]
    torch.manual_seed(0)
    model, x = make(), torch.randn(shape)
    if channels_last:
        model, x = model.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
    x.requires_grad_()
    with compressing(mode, **settings) as session:
        torch.manual_seed(1)
        model(x).square().sum().backward()
    found = {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}
    return {**found, "input": x.grad, "random": torch.get_rng_state()}, session


@pytest.mark.parametrize("kind", NETS)
def test_gradients_are_those_of_plain_training_bit_for_bit(kind):
    plain, _ = gradients(kind, None)
    for mode, exact in (("Lossless", plain), ("ErrorBounded", {"input", "random"})):
        ours, session = gradients(kind, mode, verify=True)
        assert all(torch.equal(ours[name], plain[name]) for name in exact), mode
        assert not failed(session)
        assert session.figures.compressed > 0
        assert session.figures.saved_bytes < session.figures.plain_bytes
        assert session.figures.violations == 0


@pytest.mark.parametrize("kind", ["images", "frozen", "shared"])
def test_memory_formats_of_gradients_are_kept(kind):
    plain, _ = gradients(kind, None, channels_last=True)
    ours, _ = gradients(kind, "Lossless", channels_last=True)
    assert all(torch.equal(ours[name], plain[name]) and ours[name].stride() == plain[name].stride() for name in plain)


def test_a_copy_that_lies_is_noticed(monkeypatch):
    monkeypatch.setattr("kompakt_runtime.hooks.actions.two_valued", lambda flat: sign_mask(flat.abs() - 0.1))
    assert gradients("images", "Lossless", verify=True)[1].figures.violations > 0


KEPT = {
    "images": {
        # In place after a batch norm and read by a pool only: one bit an element, whoever else saves the tensor.
        "2 [signs]": (4 * 8 * 121 * 4, 4 * 121 + 4),
        # 36 places of 8 channels in windows of 4 cells, then 9 of 9 cells: half a byte each instead of 8.
        "3 [indices]": (4 * 8 * 36 * 8, 4 * 8 * 18),
        "5 [indices]": (4 * 8 * 9 * 8, 4 * 8 * 9 // 2),
        # What the second pool was given is nobody else's.
        "5 [not read]": (4 * 8 * 36 * 4, 0),
        # The mask of dropout: 288 numbers. The ReLU before it has no other reader either.
        "7 [mask]": (288 * 4, 36 + 4),
        "6 [signs]": (288 * 4, 36 + 4),
    },
    "frozen": {"1 [not read]": (4 * 8 * 64 * 4, 0)},
    "functional": {
        # Three pools of 36, 9 and 4 places.
        "Functional [indices]": (4 * 8 * (36 + 9 + 4) * 8, 4 * 8 * (36 + 9 + 4) // 2),
        "Functional [signs]": (4 * 8 * (144 + 36) * 4, 4 * 144 + 4 + 4 * 36 + 4),
        "Functional [mask]": (4 * 8 * 36 * 4, 4 * 36 + 4),
    },
}


@pytest.mark.parametrize("kind", KEPT)
def test_what_each_layer_keeps(kind):
    layers = gradients(kind, "Lossless")[1].figures.layers
    assert {name: (layers[name].plain, layers[name].saved) for name in KEPT[kind]} == KEPT[kind]


def test_a_relu_s_output_becomes_a_mask_as_soon_as_nobody_else_holds_it(running):
    def double(_, x):
        found.append([type(entry.copy).__name__ for entry in session.hooks.ledger._entries.values() if entry.demand.signs])
        return x * 2

    found, session = [], running(mode="Lossless")
    doubles = (Holder(nn.Identity(), double) for _ in range(3))
    nn.Sequential(nn.Linear(16, 16), nn.ReLU(), *doubles)(torch.randn(16, 16)).sum().backward()
    assert found == [["NoneType"], ["NoneType"], ["Mask"]]


def test_what_goes_wrong_while_deciding_leaves_plain_training(monkeypatch):
    plain, _ = gradients("images", None)
    for name in ("window_of", "window_indices"):
        with monkeypatch.context() as patch:
            patch.setattr(settling, name, lambda *_arguments: 1 / 0)
            ours, session = gradients("images", "Lossless")
        assert all(torch.equal(ours[key], plain[key]) for key in plain)
        assert session.figures.raw["SettleFailedZeroDivisionError"] > 0
        assert innermost() is None


def test_a_user_s_hooks_around_a_pool_may_pack_into_anything():
    """They win inside their region; what they return is not ours to look at."""

    def inner(model, x):
        with torch.autograd.graph.saved_tensors_hooks(lambda t: [t], lambda packed: packed[0]):
            return F.max_pool2d(x, 2)

    def outer(model, x):
        return F.max_pool2d(model(F.max_pool2d(x * 1, 2)), 2)

    x = torch.randn(2, 3, 16, 16, requires_grad=True)
    with compressing("Lossless") as session:
        Holder(Holder(nn.Identity(), inner), outer)(x).sum().backward()
    assert x.grad.sum() == 2 * 3 * 4
    assert not failed(session)
    assert session.figures.layers["Holder [indices]"].plain == 2 * 3 * (64 + 4) * 8


def test_other_modules_with_a_pool_s_geometry_are_no_pools():
    """An embedding's indices look like those of a pool to somebody who sees only what is saved."""

    def lookup(table, x):
        y = x * 1
        return (y * y).sum() + F.embedding((y.detach() > 0).long(), table.weight).sum()

    model, x = Holder(nn.Embedding(16, 4), lookup), torch.randn(4, 4, 4, requires_grad=True)
    with compressing("Lossless") as session:
        model(x).backward()
    assert torch.equal(x.grad, 2 * x)
    assert float(model.model.weight.grad.sum()) == x.numel() * 4
    assert session.figures.raw == {"ValuesNeeded": 1, "OtherType": 1}


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_sign_mask_selects_what_a_relu_s_backward_selects(dtype):
    x = SPECIAL.repeat(5)[:37].to(dtype)
    mask = sign_mask(x)
    for read in (x, mask.decode()):
        chosen = torch.ops.aten.threshold_backward(torch.ones_like(x), read, 0)
        assert chosen.tolist() == [0.0 if value <= 0 else 1.0 for value in x.tolist()]
    assert mask.nbytes == 5 + x.element_size()


@given(st.data())
@settings(deadline=None, max_examples=60)
def test_two_valued_tensors_come_back_bit_for_bit_and_no_others(data):
    dtype = data.draw(st.sampled_from(DTYPES))
    value = torch.tensor(data.draw(st.floats(1e-3, 1e3)), dtype=dtype)
    chosen = torch.tensor(data.draw(st.lists(st.booleans(), min_size=1, max_size=200)))
    x = torch.where(chosen, value, torch.zeros((), dtype=dtype))
    mask = two_valued(x)
    assert (mask is None) == (not chosen[:64].any())
    if mask is not None:
        assert same_bits(mask.decode(), x)
        place = data.draw(st.integers(0, len(x) - 1))
        x[place] = data.draw(st.sampled_from([-0.0, -1.0, 2e3, float("nan"), float("inf"), 1e-5]))
        changed = two_valued(x)
        assert changed is None or same_bits(changed.decode(), x)
    assert torch.equal(bool_mask(chosen).decode(), chosen)


def test_large_masks_are_made_in_pieces(monkeypatch):
    monkeypatch.setitem(PIECE, "cpu", 64)
    x = torch.randn(1000, generator=torch.Generator().manual_seed(0))
    assert torch.equal(sign_mask(x).decode(), (x > 0).float())
    assert torch.equal(bool_mask(x > 0).decode(), x > 0)
    _, indices = F.max_pool2d(x.view(10, 1, 10, 10), 3, 2, 1, return_indices=True)
    assert torch.equal(window_indices(indices, (10, 10), Window((3, 3), (2, 2), (1, 1), (1, 1))).decode(), indices.view(-1))


@given(st.data())
@settings(deadline=None, max_examples=60)
def test_indices_inside_windows_come_back(data):
    pooled = data.draw(st.integers(1, 3))
    pairs = [(data.draw(st.integers(1, 5)), data.draw(st.integers(1, 3)), data.draw(st.integers(1, 2))) for _ in range(pooled)]
    kernel, stride, dilation = zip(*pairs, strict=True)
    padding = tuple(data.draw(st.integers(0, side // 2)) for side in kernel)
    extent = tuple(data.draw(st.integers(dilation[i] * (kernel[i] - 1) + 1, 12)) for i in range(pooled))
    x = torch.randn(2, 3, *extent, generator=torch.Generator().manual_seed(data.draw(st.integers(0, 99))))
    if data.draw(st.booleans()):
        x[0] = float("nan")
        x[1] = -float("inf")
    pool = (F.max_pool1d, F.max_pool2d, F.max_pool3d)[pooled - 1]
    ceil = data.draw(st.booleans())
    _, indices = pool(x, kernel, stride, padding, dilation, ceil_mode=ceil, return_indices=True)
    if data.draw(st.booleans()) and pooled == 2:
        indices = indices.to(memory_format=torch.channels_last)
    copy = window_indices(indices, extent, Window(kernel, stride, padding, dilation))
    assert torch.equal(copy.decode().as_strided(indices.shape, indices.stride()), indices)
    cells = Window(kernel, stride, padding, dilation).cells
    assert copy.nbytes <= (-(-indices.numel() // 2) + 2 if cells <= 16 else indices.numel())
