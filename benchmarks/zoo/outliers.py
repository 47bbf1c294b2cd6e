"""Outlier channels, planted: some channels of what linear layers read are made larger, and the function stays what it was.

Trained language models have a few channels some ten to a hundred times larger than the others (Dettmers et al., NeurIPS 2022,
arXiv 2208.07339); small ones trained for minutes do not. A norm's weight is multiplied there, and the weights of the linear
layers that read the norm's output are divided.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import torch

Tensor = Any
Module = Any


def plant(norm: Module, readers: Iterable[Module], channels: Sequence[int], factor: float) -> None:
    """readers: linear layers, all of those that read the norm's output."""
    with torch.no_grad():
        for t in (norm.weight, getattr(norm, "bias", None)):
            if t is not None:
                t[list(channels)] *= factor
        for reader in readers:
            reader.weight[:, list(channels)] /= factor


def plant_in_llama(model: Module, channels: Sequence[int], factor: float) -> Module:
    """In both norms of each block of a `LlamaForCausalLM` and those with the same parts; returns the model."""
    for block in model.model.layers:
        attention, mlp = block.self_attn, block.mlp
        plant(block.input_layernorm, (attention.q_proj, attention.k_proj, attention.v_proj), channels, factor)
        plant(block.post_attention_layernorm, (mlp.gate_proj, mlp.up_proj), channels, factor)
    return model
