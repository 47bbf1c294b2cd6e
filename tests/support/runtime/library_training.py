"""Models that libraries of others build, trained for a few steps, and their gradients with and without us."""

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional as F

VOCABULARY, CLASSES = 64, 4
STEPS = 6  # the first, second, third and fifth are measured; the last but one is not
MOMENTUM = 0.9


def llama() -> Any:
    import transformers

    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
        vocab_size=VOCABULARY, max_position_embeddings=64,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config)


def adapted(model: Any) -> Any:
    """With LoRA as peft puts it in place: the second matrix of each adapter begins at zero."""
    import peft

    torch.manual_seed(1)
    return peft.get_peft_model(model, peft.LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj", "down_proj"]))


def scaled(model: Any) -> Any:
    import peft

    targets = {"target_modules": ["k_proj", "v_proj", "down_proj"], "feedforward_modules": ["down_proj"]}
    return peft.get_peft_model(model, peft.IA3Config(task_type="CAUSAL_LM", **targets))


def prompted(model: Any) -> Any:
    import peft

    return peft.get_peft_model(model, peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=8))


def prefixed(model: Any) -> Any:
    import peft

    return peft.get_peft_model(model, peft.PrefixTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=8))


def biased(model: Any) -> Any:
    """With nothing trained but biases."""
    model.requires_grad_(False)
    for layer in model.modules():
        if isinstance(layer, torch.nn.Linear):
            layer.bias = torch.nn.Parameter(torch.zeros(layer.out_features))
    return model


def resnet() -> Any:
    import timm

    torch.manual_seed(0)
    return timm.create_model("resnet18", pretrained=False, num_classes=CLASSES)


def vit() -> Any:
    import timm

    torch.manual_seed(0)
    sizes = {"img_size": 32, "patch_size": 8, "depth": 2, "embed_dim": 32, "num_heads": 2}
    return timm.create_model("vit_tiny_patch16_224", pretrained=False, num_classes=CLASSES, **sizes)


def tokens(number: int) -> Any:
    return torch.randint(0, VOCABULARY, (4, 24), generator=torch.Generator().manual_seed(number))


def language_loss(model: Any, number: int) -> Any:
    return model(input_ids=tokens(number), labels=tokens(number)).loss


def picture_loss(model: Any, number: int) -> Any:
    pixels = torch.randn(CLASSES, 3, 32, 32, generator=torch.Generator().manual_seed(number))
    return F.cross_entropy(model(pixels), torch.arange(CLASSES))


@dataclass(frozen=True)
class Trained:
    """share: of each weight, root mean square of its gradient's error over its mean |momentum|; ours: warnings from our code."""

    session: Any
    loss: float
    plain_loss: float
    share: dict[str, float]
    ours: list[str]

    @property
    def layers(self) -> set[str]:
        return set(self.session.figures.layers)


def trained(session: Any, model: Any, loss: Callable[[Any, int], Any], between: Callable[[Any], Any] = lambda _: None) -> Trained:
    """Some steps, with something between two of them, then one batch with the session, which ends then, and without it."""
    optimizer = torch.optim.SGD([w for w in model.parameters() if w.requires_grad], lr=1e-3, momentum=MOMENTUM)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for number in range(STEPS):
            optimizer.zero_grad()
            loss(model, number).backward()
            optimizer.step()
            between(model)
        ours = _gradients(model, loss)
    session.stop()
    plain = _gradients(model, loss)
    assert ours[1].keys() == plain[1].keys()
    momenta = {name: optimizer.state[weight]["momentum_buffer"] for name, weight in model.named_parameters() if name in plain[1]}
    shares = {name: _share(ours[1][name] - gradient, momenta[name]) for name, gradient in plain[1].items()}
    return Trained(session, ours[0], plain[0], shares, [str(one.message) for one in told if "kompakt" in one.filename])


def _gradients(model: Any, loss: Callable[[Any, int], Any]) -> tuple[float, dict[str, Any]]:
    model.zero_grad()
    value = loss(model, 2 * STEPS)
    value.backward()
    found = {name: weight.grad.clone() for name, weight in model.named_parameters() if weight.grad is not None}
    model.zero_grad()
    return float(value.detach()), found


def _share(error: Any, momentum: Any) -> float:
    moved = float(error.square().mean().sqrt())
    return moved / float(momentum.abs().mean()) if moved else 0.0 if math.isfinite(moved) else math.nan
