"""Masks of dropout that are drawn again: bit for bit those of plain training, and nobody's random numbers move."""

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from kompakt_runtime.saved import replay
from kompakt_runtime.saved.replay import Replay
from tests.support.runtime.small_training import Holder

ROWS, WIDTH = 256, 256
BITS = ROWS * WIDTH // 8
MASKS = ("2 [mask]", "5 [mask]")
REPLAYED = ("2 [replayed]", "5 [replayed]")


def network(p: float = 0.3) -> nn.Sequential:
    torch.manual_seed(0)
    blocks = [part for _ in range(2) for part in (nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Dropout(p))]
    return nn.Sequential(*blocks, nn.Linear(WIDTH, 4))


def train(model: nn.Module, steps: int = 3) -> tuple[list[torch.Tensor], torch.Tensor]:
    """Gradients of all steps, and the user's random numbers' state at the end."""
    x = torch.randn(ROWS, WIDTH, generator=torch.Generator().manual_seed(1))
    torch.manual_seed(7)
    found = []
    for _ in range(steps):
        model.zero_grad()
        model(x).square().sum().backward()
        found += [weight.grad.clone() for weight in model.parameters()]
    return found, torch.get_rng_state()


def same(ours, plain) -> bool:
    return torch.equal(ours[1], plain[1]) and all(map(torch.equal, ours[0], plain[0]))


def kept(session) -> dict[str, float]:
    """Bytes kept of each mask and step."""
    return {name: row.saved / 3 for name, row in session.figures.layers.items() if name in (*MASKS, *REPLAYED)}


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("verify", [False, True])
def test_training_is_plain_training_bit_for_bit(running, p, verify):
    plain = train(network(p))
    session = running(mode="Lossless", replay=True, verify=verify)
    assert same(train(network(p)), plain)
    assert kept(session) == dict.fromkeys(REPLAYED, torch.get_rng_state().numel())
    assert session.figures.violations == 0


def test_without_being_asked_a_bit_an_element_is_kept(running):
    session = running(mode="Lossless")
    train(network())
    assert kept(session) == dict.fromkeys(MASKS, BITS + 4)


def test_where_a_bit_an_element_is_smaller_it_stays(running):
    session, model = running(mode="Lossless", replay=True), nn.Sequential(nn.Linear(64, 64), nn.Dropout(0.5), nn.Linear(64, 4))
    model(torch.randn(64, 64)).sum().backward()
    assert session.figures.layers["1 [mask]"].saved == 64 * 64 // 8 + 4


@pytest.mark.parametrize(("draws", "masks"), [((1, 2, 3), 3), ((2,), 2)], ids=["always", "after the proof"])
def test_a_module_that_fails_the_check_keeps_a_bit_an_element(running, draws, masks):
    """Somebody's hook draws a number after the state was read."""

    def drawing() -> nn.Module:
        def draw(module, args):
            calls.append(1)
            if len(calls) in draws:
                torch.rand(1)

        model, calls = network(0.3 if 1 in draws else 0.01), []
        model[2].register_forward_pre_hook(draw)
        return model

    plain = train(drawing())
    session = running(mode="Lossless", replay=True)
    assert same(train(drawing()), plain)
    assert session.figures.layers["2 [mask]"].saved == masks * (BITS + 4)
    assert "5 [mask]" not in session.figures.layers


def test_a_draw_that_gives_other_bits_is_never_used(running, monkeypatch):
    true = Replay.decode
    monkeypatch.setattr(replay.Replay, "decode", lambda copy, elements=None: true(copy, elements).flip(0))
    plain = train(network())
    session = running(mode="Lossless", replay=True)
    assert same(train(network()), plain)
    assert kept(session) == dict.fromkeys(MASKS, BITS + 4)


@pytest.mark.parametrize("reentrant", [False, True])
def test_recomputed_regions_draw_what_they_drew_before(running, reentrant):
    def recomputed() -> nn.Module:
        return Holder(network(), lambda inner, x: checkpoint(inner, x.requires_grad_(), use_reentrant=reentrant))

    plain = train(recomputed())
    running(mode="Lossless", replay=True)
    assert same(train(recomputed()), plain)


def test_the_memory_format_of_images_is_proved_apart(running):
    def model():
        torch.manual_seed(0)
        return nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.Dropout(0.4), nn.Conv2d(16, 4, 3))

    x = torch.randn(8, 3, 32, 32)
    found = []
    for mode in (None, "Lossless"):
        net = model()
        session = running(mode=mode, replay=True) if mode else None
        torch.manual_seed(3)
        for images in (x, x.to(memory_format=torch.channels_last), x):
            net(images).square().sum().backward()
        found.append([weight.grad for weight in net.parameters()])
    assert all(map(torch.equal, *found))
    assert session.figures.layers["1 [replayed]"].saved == 3 * torch.get_rng_state().numel()
