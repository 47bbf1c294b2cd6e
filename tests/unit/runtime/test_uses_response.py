"""What a backward function reads shows in what moves its gradients."""

import pytest
import torch

from kompakt_runtime.uses.reads import Read
from kompakt_runtime.uses.response import Response, agrees, response

DELTA = torch.randn(64, 32, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
SAVED = torch.randn(64, 32, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
NOTHING: frozenset[int] = frozenset()
ONE = frozenset({0})

# What a backward function may compute from the gradient above it and the saved tensor, and how that is seen.
FUNCTIONS = {
    Read.SHAPE: (lambda t: (torch.full_like(t, 2),), Response(NOTHING)),
    Read.SIGN: (lambda t: (DELTA * (t > 0),), Response(ONE, NOTHING, NOTHING, ONE, NOTHING)),
    Read.RANGE: (lambda t: (DELTA * (t.abs() < 0.5),), Response(ONE, ONE, NOTHING, ONE, NOTHING)),
    Read.PRODUCT: (lambda t: (DELTA.mT @ t,), Response(ONE, ONE, ONE, NOTHING, ONE)),
    Read.ELEMENT: (lambda t: (DELTA * t.exp(),), Response(ONE, ONE, ONE, ONE, NOTHING)),
    Read.JOINT: (lambda t: (DELTA * t.softmax(-1),), Response(ONE, ONE, ONE, ONE, ONE)),
}


@pytest.mark.parametrize("read", FUNCTIONS)
def test_ways_of_reading_are_told_apart(read):
    run, expected = FUNCTIONS[read]
    assert response(run, SAVED) == expected


@pytest.mark.parametrize(
    ("read", "wrong"),
    [(Read.SHAPE, Read.SIGN), (Read.SIGN, Read.RANGE), (Read.RANGE, Read.ELEMENT), (Read.PRODUCT, Read.ELEMENT),
     (Read.LINEAR, Read.JOINT), (Read.ELEMENT, Read.JOINT), (Read.ELEMENT, Read.PRODUCT)],
)  # fmt: skip
def test_a_row_that_claims_too_little_is_found_out(read, wrong):
    """Whoever believed it would spoil gradients."""
    assert not agrees(read, (0,), response(FUNCTIONS[wrong][0], SAVED))


def test_a_gradient_that_the_row_does_not_name_must_not_move():
    seen = response(lambda t: (DELTA * t, DELTA * t), SAVED)
    assert agrees(Read.PRODUCT, (0, 1), seen)
    assert not agrees(Read.PRODUCT, (0,), seen)


def test_a_gradient_that_nobody_asks_for_is_left_out():
    assert response(lambda t: (None, DELTA * t), SAVED).at_all == {1}


def test_sums_in_any_order_are_no_effect():
    """As from kernels with atomic additions."""
    draw = torch.Generator().manual_seed(3)
    jitter = lambda: 1e-9 * torch.randn(64, 32, generator=draw, dtype=torch.float64)  # noqa: E731
    assert response(lambda t: (DELTA + jitter(),), SAVED).at_all == NOTHING
    assert response(lambda t: (DELTA * t + jitter(),), SAVED).at_all == ONE


def test_what_turns_into_nan_has_moved():
    seen = response(lambda t: (DELTA * t.sqrt(),), SAVED.abs())
    assert seen.at_all == ONE


@pytest.mark.parametrize("t", [torch.tensor([True, False, True]), torch.tensor([0, 1, 2])])
def test_masks_and_indices_are_replaced_by_others_of_their_kind(t):
    asked = []
    response(lambda other: (asked.append(other), DELTA)[1:], t)
    assert {other.dtype for other in asked} == {t.dtype}
    assert any(not torch.equal(other, t) for other in asked)
    assert all(other.min() >= 0 and other.max() <= t.max() for other in asked if t.dtype != torch.bool)


def test_half_precision_is_judged_by_its_own_last_bits():
    """A product must not be taken for a comparison because a millionth is nothing there."""
    delta, saved = DELTA.bfloat16(), SAVED.bfloat16()
    seen = response(lambda t: (delta.mT @ t,), saved)
    assert seen.slightly == ONE
    assert seen.bent == NOTHING


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_rounding_bends_nothing(dtype):
    """As in attention, whose output moves the gradients by a few percent, which are rounded to the type."""
    saved, most = SAVED.to(dtype), (DELTA.mT @ DELTA).float()
    straight = response(lambda t: ((most + 0.03 * (DELTA.mT.float() @ t.float())).to(dtype),), saved)
    assert straight == Response(ONE, ONE, ONE, NOTHING, ONE)
    curved = response(lambda t: ((most + 0.2 * (DELTA.mT.float() @ t.float().square())).to(dtype),), saved)
    assert curved.bent == ONE
