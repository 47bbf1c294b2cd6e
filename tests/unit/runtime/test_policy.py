"""The table of what happens to a saved tensor, walked in full."""

import itertools
from dataclasses import replace

import pytest

from kompakt_runtime.uses.policy import WAITS, Exact, KeepPlain, Lossy, TensorFacts, Use, decide

FACTS = TensorFacts(nbytes=100_000, lossy_type=True)


BOOLEAN, CONSTANT = replace(FACTS, lossy_type=False, boolean=True), replace(FACTS, constant=True)


@pytest.mark.parametrize(
    ("changes", "bound", "held", "verdict"),
    [
        ({}, 0.1, False, Lossy(0.1)),
        ({}, 0.1, True, KeepPlain("HeldElsewhere")),
        ({}, None, False, KeepPlain("NoBound")),
        ({"lossy_type": False}, 0.1, False, KeepPlain("OtherType")),
        ({"nbytes": 65_535}, 0.1, False, KeepPlain("Small")),
    ],
)
@pytest.mark.parametrize("use", [Use.WEIGHT_GRADIENT, Use.NONLINEAR])
def test_inputs_of_linear_and_of_nonlinear_operations_are_compressed_and_why_not(use, changes, bound, held, verdict):
    """Whether one of a nonlinear operation is called so at all is what `activationGradients` says."""
    facts = replace(FACTS, **changes)
    assert decide(use, facts, "ErrorBounded", 65536, bound, held=held) == verdict


@pytest.mark.parametrize("use", Use)
def test_other_modes_never_change_a_value(use):
    assert decide(use, FACTS, "None", 0, 0.1) == KeepPlain("ModeNone")
    lossless = decide(use, FACTS, "Lossless", 0, 0.1)
    assert not isinstance(lossless, Lossy)
    assert use not in (Use.WEIGHT_GRADIENT, Use.NONLINEAR) or lossless == KeepPlain("ModeLossless")


@pytest.mark.parametrize("mode", ["Lossless", "ErrorBounded"])
@pytest.mark.parametrize(
    ("use", "facts", "verdict"),
    [
        (Use.SHAPE, FACTS, Exact.NOTHING),
        (Use.INDICES, replace(FACTS, lossy_type=False), Exact.CELLS),
        (Use.SIGN, FACTS, WAITS),
        (Use.VALUES, FACTS, KeepPlain("ValuesNeeded")),
        (Use.VALUES, BOOLEAN, Exact.BITS),
        (Use.VALUES, CONSTANT, Exact.TRY_BITS),
        (Use.VALUES, replace(CONSTANT, replayable=True), Exact.REPLAY),
        (Use.VALUES, replace(FACTS, replayable=True), KeepPlain("ValuesNeeded")),
    ],
)
def test_what_is_not_read_is_not_kept(mode, use, facts, verdict):
    assert decide(use, facts, mode, 65536, 0.1) == verdict


def test_a_waiting_tensor_is_one_that_could_be_compressed():
    for nbytes, lossy_type in itertools.product((10, 100_000), (True, False)):
        verdict = decide(Use.SIGN, TensorFacts(nbytes, lossy_type), "ErrorBounded", 65536, None)
        assert (verdict is WAITS) == (nbytes >= 65536 and lossy_type)
