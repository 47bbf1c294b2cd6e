"""A copy that cannot be read when the backward pass wants it: its original is gone, so training must not just go on."""

import gc
import time
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from kompakt_runtime.saved import decoded
from kompakt_runtime.saved.handle import DecodeFailed
from kompakt_runtime.session import Session
from tests.support.runtime.small_training import batch, compressing, failed, gradients, network, ours_and_plain, same, warm_up
from tests.support.runtime.two_ranks import in_two_ranks


def damage(session: Session, layer: str) -> None:
    """Loses the packed words of one layer's input, in memory."""
    entry = next(entry for entry in session.hooks.ledger._entries.values() if entry.layer == layer)
    part = entry.packed.parts[0]
    object.__setattr__(part, "words", part.words[:0])


def test_a_damaged_copy_of_a_norm_s_input_is_named_too(running):
    torch.manual_seed(0)
    model, session = (
        nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.LayerNorm(6), nn.Flatten()),
        running(activation_gradients="Bounded"),
    )
    warm_up(model)
    loss = model(batch()).square().sum()
    damage(session, "1 [norm]")
    with pytest.raises(DecodeFailed, match=r"what 1 \[norm\] saved"):
        loss.backward()
    assert all(reason.startswith("DecodeFailed") for reason in failed(session))


def test_a_damaged_copy_ends_the_backward_pass_by_an_error_that_names_the_layer(running):
    model, session = network(), running()
    warm_up(model)
    loss = model(batch().requires_grad_()).square().sum()
    damage(session, "2")
    with pytest.raises(DecodeFailed, match=r"what 2 saved \(9216 bytes\) cannot be read.*Error: ") as raised:
        loss.backward()
    assert model[5].weight.grad is not None, "what was read before is there"
    assert model[2].weight.grad is None, "nothing was made up"
    assert session.figures.raw[f"DecodeFailed{type(raised.value.__cause__).__name__}"] == 1

    del loss, raised
    gc.collect()
    assert not session.hooks.ledger._entries, "nothing stays behind"
    ours, plain = ours_and_plain(model, session)
    assert torch.equal(ours["input"], plain["input"]), "the next step trains as any other"
    assert not [reason for reason in session.figures.raw if reason.startswith("HookFailed")]


@pytest.mark.parametrize("error", [torch.cuda.OutOfMemoryError, MemoryError])
def test_want_of_memory_keeps_its_class_for_loops_that_leave_out_a_batch(running, monkeypatch, error):
    model, session = network(), running()
    warm_up(model)
    loss = model(batch()).square().sum()

    def broken(_packed):
        raise error("no room")

    monkeypatch.setattr(decoded, "decode", broken)
    with pytest.raises(error, match=r"what 5 saved .*: no room"):
        loss.backward()
    assert session.figures.raw[f"DecodeFailed{error.__name__}"] == 1


def test_a_copy_is_tried_again_without_those_that_were_read_before(running, monkeypatch):
    model, session = network(), running()
    warm_up(model)
    wanted = gradients(model, batch())
    calls, forgotten = [], []

    def short_of_memory(packed):
        calls.append(packed)
        if len(calls) == 2:
            session.hooks.ledger.decoded.recent[0, 0] = SimpleNamespace(forget=lambda: forgotten.append(len(calls)))
            raise torch.cuda.OutOfMemoryError("no room")
        assert len(calls) != 3 or forgotten == [2]
        return plain(packed)

    plain = decoded.decode  # type: ignore[attr-defined]
    monkeypatch.setattr(decoded, "decode", short_of_memory)
    assert same(gradients(model, batch()), wanted)
    assert len(calls) == 3
    assert not [reason for reason in session.figures.raw if reason.startswith("DecodeFailed")]


@pytest.mark.parametrize("verify", [False, True])
def test_a_failure_to_count_or_compare_ends_no_backward_pass(running, monkeypatch, verify):
    model, session = network(), running(verify=verify)
    warm_up(model)
    wanted = gradients(model, batch())
    monkeypatch.setattr(session.figures, "count_storage", lambda *_: 1 / 0)
    monkeypatch.setattr("kompakt_runtime.saved.account.differences", lambda *_: 1 / 0)
    assert same(gradients(model, batch()), wanted)
    assert session.figures.raw["HookFailedZeroDivisionError"] == (4 if verify else 2)


def one_rank_cannot_read(rank: int) -> tuple[str, float]:
    """What ended this rank's training, and after how many seconds."""
    model, begun = DistributedDataParallel(network()), time.monotonic()
    with compressing() as session:
        loss = model(batch(rank)).square().sum()
        if rank == 1:
            damage(session, "2")
        try:
            loss.backward()
        except RuntimeError as error:
            return f"{type(error).__name__}: {error}", time.monotonic() - begun
    return "", time.monotonic() - begun


def test_a_rank_that_cannot_read_its_copy_ends_and_the_other_does_not_wait_for_it(tmp_path):
    (other, waited), (failed, _) = in_two_ranks(one_rank_cannot_read, tmp_path)
    assert failed.startswith("DecodeFailed: kompakt: the compressed copy of what 2 saved")
    assert other, "it must not train on with a gradient that is not whole"
    assert "DecodeFailed" not in other
    assert waited < 60
