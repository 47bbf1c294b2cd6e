"""The models: built by the libraries that people train with, from configurations, with random weights.

They are small in width and in what they are given, not in depth: where a family has them at least 12 blocks or 50 convolutions.
Libraries are imported when one of their models is built.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal

import torch
from torch.nn import functional as F

from benchmarks.zoo.data import VOCABULARY, Batch, continued, masked_bytes, next_bytes, pictures

Tensor = Any
Module = Any
Family = Literal["resnet", "cnn", "transformer", "experts"]
Library = Literal["timm", "torchvision", "transformers"]

PIXELS, PICTURES = 64, 16
LENGTH, PIECES = 64, 8
BLOCKS, WIDTH, HEADS = 12, 128, 4
CLASSES: Final = 10
# How many times less than plain autograd a family must keep, by what it computes in: the project's own aims.
AIMS: Final[dict[str, dict[str, float]]] = {
    "float32": {"resnet": 4.5, "cnn": 4.0, "transformer": 4.0, "experts": 2.5},
    "autocast": dict.fromkeys(("resnet", "cnn", "transformer", "experts"), 2.5),
    "bfloat16": dict.fromkeys(("resnet", "cnn", "transformer", "experts"), 2.0),
}


@dataclass(frozen=True)
class ZooModel:
    """batch: of a number; loss: of the model on a batch, as its library's users write it."""

    library: Library
    family: Family
    build: Callable[[], Module]
    batch: Callable[[int], Batch]
    loss: Callable[[Module, Batch], Tensor]
    optimizer: Callable[[Any], Any]


def sgd(weights: Any) -> Any:
    return torch.optim.SGD(weights, lr=0.02, momentum=0.9, weight_decay=5e-4)


def adamw(weights: Any) -> Any:
    return torch.optim.AdamW(weights, lr=5e-4, weight_decay=0.01)


def loss_outside(model: Module, batch: Batch) -> Tensor:
    return F.cross_entropy(model(batch["pixels"]).float(), batch["labels"])


def loss_inside(model: Module, batch: Batch) -> Tensor:
    """Models of transformers make their loss themselves where they are given labels."""
    return model(**batch).loss


def pixels_by_name(model: Module, batch: Batch) -> Tensor:
    return model(pixel_values=batch["pixels"], labels=batch["labels"]).loss


def of_timm(name: str, **options: Any) -> Module:
    import timm

    return timm.create_model(name, pretrained=False, num_classes=CLASSES, **options)


def of_torchvision(name: str, **options: Any) -> Module:
    import torchvision

    return getattr(torchvision.models, name)(weights=None, num_classes=CLASSES, **options)


def of_transformers(model: str, config: str, **options: Any) -> Module:
    import transformers

    return getattr(transformers, model)(getattr(transformers, config)(**options))


def vision(library: Library, family: Family, name: str, optimizer: Callable[[Any], Any] = sgd, **options: Any) -> ZooModel:
    make = of_timm if library == "timm" else of_torchvision
    batch = partial(pictures, count=PICTURES, pixels=PIXELS)
    return ZooModel(library, family, partial(make, name, **options), batch, loss_outside, optimizer)


def language(
    model: str, config: str, read: Callable[..., Batch] = next_bytes, family: Family = "transformer", **options: Any
) -> ZooModel:
    batch = partial(read, count=PIECES, length=LENGTH)
    build = partial(of_transformers, model, config, vocab_size=VOCABULARY, **options)
    return ZooModel("transformers", family, build, batch, loss_inside, adamw)


def decoder(name: str, family: Family = "transformer", **options: Any) -> ZooModel:
    """Llama and those that name their sizes as it does."""
    sizes = {
        "hidden_size": WIDTH, "intermediate_size": 344, "num_hidden_layers": BLOCKS, "num_attention_heads": HEADS,
        "num_key_value_heads": HEADS // 2, "max_position_embeddings": 2 * LENGTH, "use_cache": False,
    }  # fmt: skip
    return language(f"{name}ForCausalLM", f"{name}Config", family=family, **{**sizes, **options})


ENCODER: Final[dict[str, Any]] = {
    "hidden_size": WIDTH, "num_hidden_layers": BLOCKS, "num_attention_heads": HEADS, "intermediate_size": 4 * WIDTH,
}  # fmt: skip
GPT2: Final[dict[str, Any]] = {
    "n_positions": 2 * LENGTH, "n_embd": WIDTH, "n_layer": BLOCKS, "n_head": HEADS, "use_cache": False,
    "bos_token_id": 0, "eos_token_id": 0,
}  # fmt: skip
T5: Final[dict[str, Any]] = {  # as many blocks in both halves together as others have
    "d_model": WIDTH, "d_kv": WIDTH // HEADS, "d_ff": 4 * WIDTH, "num_layers": BLOCKS // 2, "num_decoder_layers": BLOCKS // 2,
    "num_heads": HEADS, "decoder_start_token_id": 0, "use_cache": False,
}  # fmt: skip
EXPERTS: Final[dict[str, Any]] = {"num_local_experts": 4, "num_experts_per_tok": 2, "intermediate_size": 256}
VIT: Final[dict[str, Any]] = {"image_size": PIXELS, "patch_size": 8, "num_labels": CLASSES, **ENCODER}
PICTURE_BATCH: Final = partial(pictures, count=PICTURES, pixels=PIXELS)

ZOO: Final[dict[str, ZooModel]] = {
    "resnet50 (torchvision)": vision("torchvision", "resnet", "resnet50"),
    "resnet50 (timm)": vision("timm", "resnet", "resnet50"),
    "densenet121 (torchvision)": vision("torchvision", "cnn", "densenet121"),
    "efficientnet_b0 (torchvision)": vision("torchvision", "cnn", "efficientnet_b0"),
    "convnext_tiny (torchvision)": vision("torchvision", "cnn", "convnext_tiny", adamw),
    "mobilenetv3_large_100 (timm)": vision("timm", "cnn", "mobilenetv3_large_100"),
    "regnety_004 (timm)": vision("timm", "cnn", "regnety_004"),
    "vit_tiny (timm)": vision("timm", "transformer", "vit_tiny_patch16_224", adamw, img_size=PIXELS, patch_size=8),
    "ViT": ZooModel(
        "transformers", "transformer", partial(of_transformers, "ViTForImageClassification", "ViTConfig", **VIT),
        PICTURE_BATCH, pixels_by_name, adamw,
    ),
    "BERT": language("BertForMaskedLM", "BertConfig", masked_bytes, **ENCODER, max_position_embeddings=2 * LENGTH),
    "GPT-2": language("GPT2LMHeadModel", "GPT2Config", **GPT2),
    "Llama": decoder("Llama"),
    "Llama, eager attention": decoder("Llama", attn_implementation="eager"),
    "Mistral": decoder("Mistral", sliding_window=LENGTH // 2),  # without a window that is felt it is Llama
    "Qwen3": decoder("Qwen3", head_dim=WIDTH // HEADS),
    "T5": language("T5ForConditionalGeneration", "T5Config", continued, **T5),
    "T5, gated": language("T5ForConditionalGeneration", "T5Config", continued, **T5, feed_forward_proj="gated-gelu"),
    "Mixtral": decoder("Mixtral", "experts", **EXPERTS),  # grouped_mm where torch has it
    "Mixtral, eager experts": decoder("Mixtral", "experts", **EXPERTS, experts_implementation="eager"),
}  # fmt: skip
