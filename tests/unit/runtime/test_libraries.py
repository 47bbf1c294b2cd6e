"""Training as users of transformers, peft and timm do it: adapters, frozen parts, checkpointing, text made between steps."""

import pytest
import torch

from kompakt_runtime.bounds.layer import TOLERANCE
from tests.support.needs import needs
from tests.support.runtime.library_training import (
    STEPS,
    Trained,
    adapted,
    biased,
    language_loss,
    llama,
    picture_loss,
    prefixed,
    prompted,
    resnet,
    scaled,
    tokens,
    trained,
    vit,
)
from tests.support.runtime.small_training import failed

# What libraries warn of is theirs; what we warn of fails the test by `sound`.
pytestmark = pytest.mark.filterwarnings("default")
TARGET = 0.01
ALL = {"activation_gradients": "Bounded"}
BLOCK = "model.layers.0.mlp.down_proj"


def sound(done: Trained) -> None:
    """As without us, but for errors within the target."""
    assert done.loss == pytest.approx(done.plain_loss, rel=1e-5)
    assert max(done.share.values()) < TOLERANCE * TARGET
    assert done.session.hooks.readers.waiting == 0
    assert done.session.figures.violations == 0
    assert not failed(done.session)
    assert not done.ours


def test_of_adapters_beside_frozen_weights_only_their_own_inputs_are_kept(running):
    needs("peft", "zoo")
    done = trained(running(), adapted(llama()), language_loss)
    sound(done)
    linear = {name for name in done.layers if not name.endswith("]")}
    assert len(linear) >= 10, "q_proj and v_proj read the same tensor; the stricter of the two is named"
    assert all(name.endswith((".lora_A.default", ".lora_B.default")) for name in linear)
    assert done.session.figures.forwards == STEPS + 1


@pytest.mark.parametrize("training", [True, False])
def test_adapters_are_trained_within_the_target(running, training):
    """In evaluation mode too, as those who do not want dropout call it."""
    needs("peft", "zoo")
    done = trained(running(**ALL), adapted(llama()).train(training), language_loss)
    sound(done)
    packed = done.session.figures
    assert packed.plain_bytes > 2 * packed.saved_bytes
    assert packed.forwards == STEPS + training


@pytest.mark.parametrize("tuned", [scaled, prompted, prefixed, biased])
def test_where_no_weight_of_a_linear_layer_is_trained_gradients_of_what_is_say_the_bounds(running, tuned):
    needs("peft", "zoo")
    done = trained(running(**ALL), tuned(llama()), language_loss)
    sound(done)
    assert max(done.share.values()) > TARGET / 100
    assert done.session.figures.plain_bytes > 2.5 * done.session.figures.saved_bytes


def test_of_adapters_in_a_checkpoint_nothing_is_known_so_first_bounds_serve_for_a_while_and_then_none(running, monkeypatch):
    needs("peft", "zoo")
    monkeypatch.setattr("kompakt_runtime.bounds.ends.TRIES", 2)
    model = llama()
    model.gradient_checkpointing_enable({"use_reentrant": False})
    model = adapted(model)
    model.enable_input_require_grads()
    done = trained(running(**ALL), model.train(), language_loss)
    sound(done)
    assert done.session.figures.raw["NoBound"]


def test_of_a_frozen_trunk_nothing_is_kept(running):
    needs("timm", "zoo")
    model = resnet()
    for name, weight in model.named_parameters():
        weight.requires_grad_(name.startswith("fc"))
    done = trained(running(**ALL), model, picture_loss)
    sound(done)
    assert done.layers == {"fc"}
    assert done.session.figures.plain_bytes == (STEPS + 1) * 4 * 512 * 4
    assert done.session.figures.plain_bytes > 4 * done.session.figures.saved_bytes


@pytest.mark.parametrize("build", [resnet, vit])
def test_a_whole_model_is_fine_tuned_in_evaluation_mode(running, build):
    """With statistics that stay as they are."""
    needs("timm", "zoo")
    done = trained(running(**ALL), build().eval(), picture_loss)
    sound(done)
    assert done.session.figures.forwards == STEPS
    assert done.session.figures.plain_bytes > 2 * done.session.figures.saved_bytes


@pytest.mark.parametrize("with_adapters", [False, True])
@pytest.mark.parametrize("reentrant", [True, False])
def test_transformers_recomputes_its_blocks(running, reentrant, with_adapters):
    needs("peft" if with_adapters else "transformers", "zoo")
    model = llama()
    model.gradient_checkpointing_enable({"use_reentrant": reentrant})
    if with_adapters:
        model = adapted(model)
        model.enable_input_require_grads()
    done = trained(running(**ALL), model.train(), language_loss)
    sound(done)
    # A reentrant recomputation is a forward pass of its own; in the other kind the checkpoint's hooks are the innermost.
    assert any(BLOCK in name for name in done.layers) == reentrant
    assert bool(done.session.figures.raw["UserHooks"]) != reentrant


@pytest.mark.parametrize("build", [resnet, vit])
@pytest.mark.parametrize("reentrant", [True, False])
def test_timm_recomputes_its_blocks(running, reentrant, build):
    needs("timm", "zoo")
    from timm.layers import set_reentrant_ckpt

    model = build()
    model.set_grad_checkpointing(True)
    set_reentrant_ckpt(reentrant)
    try:
        done = trained(running(**ALL), model, picture_loss)
    finally:
        set_reentrant_ckpt(False)
    sound(done)
    assert bool(done.session.figures.raw["UserHooks"]) != reentrant
    assert done.session.figures.plain_bytes > 1.5 * done.session.figures.saved_bytes


@pytest.mark.parametrize("with_adapters", [False, True])
@pytest.mark.parametrize("training", [True, False])
def test_text_is_made_between_two_steps(running, training, with_adapters):
    """Made with the weights as they are, in either mode; nothing of it is kept, and training goes on."""
    needs("peft" if with_adapters else "transformers", "zoo")
    made = []

    def continue_text(model) -> None:
        with torch.no_grad():
            made.append(model.train(training).generate(input_ids=tokens(0)[:, :4], max_new_tokens=5, pad_token_id=0))
        model.train()

    build = (lambda: adapted(llama())) if with_adapters else llama
    done = trained(running(**ALL), build(), language_loss, continue_text)
    sound(done)
    assert [text.shape for text in made] == [(4, 9)] * STEPS
    assert done.session.figures.forwards == STEPS + 1
    assert trained(running(**ALL), build(), language_loss).session.figures.saved_bytes == done.session.figures.saved_bytes


def test_text_is_made_with_gradients_on_and_thrown_away(running):
    """As by those who forget no_grad: each token is a forward pass that nobody reads."""
    needs("transformers", "zoo")

    def continue_text(model) -> None:
        token = tokens(0)[:, :4]
        for _ in range(3):
            token = torch.cat([token, model(input_ids=token).logits[:, -1:].argmax(-1)], 1)

    sound(trained(running(**ALL), llama(), language_loss, continue_text))
