"""What autograd holds and whose hooks are innermost, in the way of newer torch and in the way of older: both tell the same."""

import contextlib
import threading

import pytest
import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks

from kompakt_runtime.compat import graph, hooks
from kompakt_runtime.saved.handle import PlainTensor
from kompakt_runtime.scope import origin
from tests.support.runtime.small_training import Holder, failed, ours_and_plain, same

IMAGES = torch.randn(8, 3, 16, 16, generator=torch.Generator().manual_seed(1))


@pytest.fixture(params=["told", "asked"], autouse=True)
def way(request, monkeypatch):
    """The second is that of torch before SavedTensor.data."""
    if request.param == "asked":
        monkeypatch.setattr(graph, "SLOTS_TOLD", False)
    elif not graph.SLOTS_TOLD:
        pytest.skip(f"torch {torch.__version__} does not tell")


@pytest.fixture
def watched(monkeypatch):
    """Begins to watch hooks; what watches them is gone after the test."""
    for name in ("_push_saved_tensors_default_hooks", "_pop_saved_tensors_default_hooks"):
        monkeypatch.setattr(torch._C._autograd, name, getattr(torch._C._autograd, name))
    return hooks.watched


def network() -> nn.Sequential:
    torch.manual_seed(0)
    features = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.Conv2d(8, 8, 3), nn.ReLU())
    return nn.Sequential(features, nn.Flatten(), nn.Linear(8 * 36, 32), nn.ReLU())


def test_relus_and_pools_are_found_and_no_gradient_changes(running):
    model = network()
    session = running(mode="Lossless", verify=True)
    assert same(*ours_and_plain(model, session, IMAGES))
    kept = {name: row.plain / row.saved for name, row in session.figures.layers.items() if row.saved}
    assert kept["0.2 [indices]"] == 16
    assert kept["3 [signs]"] > 20
    assert session.figures.violations == 0
    assert not failed(session)


def test_a_look_leaves_a_weight_its_hooks(running):
    """In torch before SavedTensor.data what is unpacked in place of a leaf takes its hooks away."""
    model, seen = network(), []
    model[0][3].weight.register_hook(lambda gradient: seen.append(gradient))
    running()
    for _ in range(2):
        model(IMAGES).square().sum().backward()
    assert len(seen) == 2


def test_a_look_counts_as_no_read_and_keeps_nothing(running):
    """A copy that was only looked at must still be there for the backward pass; a handle that stayed noted would keep it."""
    session = running(mode="Lossless")
    loss = network()(IMAGES).square().sum()
    assert session.figures.compressed == 0
    assert session.hooks.ledger._entries
    loss.backward()
    del loss
    assert session.figures.compressed > 0
    assert not session.hooks.ledger._entries


def test_nobody_else_s_hooks_are_called_for_other_pools(running):
    """A pooling operation between a user's own hooks lies beside one of ours; its input was made elsewhere."""
    unpacked = []

    def both(model, x):
        first = model[0](x)
        with saved_tensors_hooks(lambda t: t, lambda t: unpacked.append(t) or t):
            second = nn.functional.max_pool2d(first * 2, 2)
        return model[1:](nn.functional.pad(first + nn.functional.interpolate(second, first.shape[2:]), (0, 0)))

    running(mode="Lossless")
    loss = Holder(network(), both)(IMAGES).square().sum()
    assert not unpacked
    loss.backward()
    assert unpacked


def test_the_check_at_start_up_passes_and_notices_what_cannot_be_looked_at(monkeypatch):
    assert origin.self_check() == ""
    monkeypatch.setattr(origin, "held", lambda node, slot: ())
    assert origin.self_check() == "what an operation holds cannot be looked at"
    monkeypatch.setattr(origin, "saved_for", lambda t: 0)
    assert origin.self_check() == "the operation that saves a tensor cannot be told"


def test_watched_hooks_are_those_that_torch_names(watched):
    inner, outer = (lambda t: t, lambda t: t), (lambda t: t, lambda t: t)
    innermost = watched()
    seen = [innermost()]
    with saved_tensors_hooks(*outer):
        seen.append(innermost())
        with contextlib.suppress(ValueError), saved_tensors_hooks(*inner):
            seen.append(innermost())
            thread = threading.Thread(target=lambda: seen.append(innermost()))
            thread.start()
            thread.join()
            raise ValueError
        seen.append(innermost())
    assert [*seen, innermost()] == [None, outer, inner, None, outer, None]


def test_hooks_entered_before_watching_count_as_somebody_s(watched):
    handed = []
    with saved_tensors_hooks(lambda t: handed.append(t.numel()) or t, lambda t: t):
        innermost = watched()
        assert innermost() is not None
        with saved_tensors_hooks(len, len):
            assert innermost() == (len, len)
        assert innermost() is not None
    assert innermost() is None
    assert handed == [1]


def test_hooks_that_are_refused_are_not_noted(watched):
    innermost = watched()
    with torch.autograd.graph.disable_saved_tensors_hooks("not here"):
        with pytest.raises(RuntimeError, match="not here"):
            torch._C._autograd._push_saved_tensors_default_hooks(len, len)
        assert innermost() is None


def test_on_a_thread_of_autograd_s_own_tensors_stay_as_they_are(running):
    session, kept = running(), []
    thread = threading.Thread(target=lambda: kept.append(session._forwards._pair[0](torch.ones(3))))
    thread.start()
    thread.join()
    assert isinstance(kept[0], PlainTensor)
