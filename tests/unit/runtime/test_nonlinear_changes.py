"""What is changed in place where inputs of nonlinear operations are packed: errors come where plain training has them."""

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tests.support.runtime.small_training import Holder, batch, failed

CHANGES: dict[str, tuple[bool, Callable]] = {}


def change(raises: bool):
    """Names a use of nonlinear operations in which something is changed in place; does plain training raise?"""

    def put(function: Callable) -> Callable:
        CHANGES[function.__name__] = (raises, function)
        return function

    return put


@change(True)
def input_of_batch_norm_after_its_call(parts, x):
    hidden = parts["conv"](x)
    out = parts["batch"](hidden)
    hidden.mul_(2)
    return out


@change(True)
def input_of_layer_norm_through_an_alias(parts, x):
    hidden = parts["conv"](x)
    alias, out = hidden.detach(), parts["layer"](hidden)
    del hidden
    alias.add_(1)
    return out


@change(True)
def one_element_of_the_input_of_gelu(parts, x):
    hidden = parts["conv"](x)
    out = parts["gelu"](hidden)
    hidden.view(-1)[3] = 1
    return out


@change(True)
def input_of_a_function_before_the_call_around_it_ends(parts, x):
    hidden = parts["conv"](x)
    out = F.gelu(hidden)
    hidden.zero_()
    return out


@change(True)
def keys_of_attention_beside_its_queries(parts, x):
    qkv = parts["conv"](x).flatten(2).view(8, 2, 4, 36)
    out = F.scaled_dot_product_attention(qkv[:, 0:1], qkv[:, 1:], qkv[:, 1:])
    qkv.detach()[:, 1].mul_(2)
    return out


@change(True)
def output_of_attention(parts, x):
    hidden = parts["conv"](x)
    return F.scaled_dot_product_attention(hidden, hidden, hidden).mul_(2)


@change(False)
def outputs_of_norms_and_gelu(parts, x):
    hidden = parts["batch"](parts["conv"](x)).mul_(2)
    return parts["gelu"](parts["layer"](hidden).add_(1)).mul_(3)


@change(False)
def an_input_before_it_is_saved(parts, x):
    return parts["layer"](parts["conv"](x).mul_(2))


@change(False)
def a_copy_of_an_input(parts, x):
    hidden = parts["conv"](x)
    out = parts["gelu"](hidden)
    hidden.clone().mul_(2)
    return out


@pytest.mark.parametrize("on", [False, True])
@pytest.mark.parametrize("name", CHANGES)
def test_changes_in_place_raise_exactly_where_they_do_in_plain_training(running, name, on):
    torch.manual_seed(0)
    raises, function = CHANGES[name]
    parts = {"conv": nn.Conv2d(3, 8, 3, padding=1), "batch": nn.BatchNorm2d(8), "layer": nn.LayerNorm(6), "gelu": nn.GELU()}
    model = Holder(nn.ModuleDict(parts), function)
    session = running(nonlinear="Bounded") if on else None
    for _ in range(2):  # measured steps, then one with bounds
        loss = model(batch().requires_grad_()).square().sum()
        if raises:
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                loss.backward()
        else:
            loss.backward()
        for site in session.sites._sites.values() if session else ():
            site.observing = False
        for operation in session.hooks.operations if session else ():
            operation.bound = operation.bound or 0.01
    assert not session or not failed(session)
