"""The table of what happens to a saved tensor, walked in full."""

import itertools
from dataclasses import replace

import pytest

from kompakt_runtime.policy import WAITS, Exact, KeepPlain, Lossy, TensorFacts, Use, decide

FACTS = TensorFacts(nbytes=100_000, lossy_type=True, whole=True)


def test_only_the_input_of_a_linear_operation_is_compressed():
    assert decide(Use.WEIGHT_GRADIENT, FACTS, "ErrorBounded", 65536, 0.1) == Lossy(0.1)
    assert decide(Use.VALUES, FACTS, "ErrorBounded", 65536, 0.1) == KeepPlain("ValuesNeeded")
    assert decide(Use.SIGN, FACTS, "ErrorBounded", 65536, 0.1) is WAITS
    assert decide(Use.WEIGHT_GRADIENT, FACTS, "ErrorBounded", 65536, 0.1, held=True) == KeepPlain("HeldElsewhere")


def test_an_input_of_a_nonlinear_operation_is_judged_like_one_of_a_linear_one():
    """Whether it is called so at all is what `nonlinearInputs` says."""
    for use in (Use.WEIGHT_GRADIENT, Use.NONLINEAR):
        assert decide(use, FACTS, "ErrorBounded", 65536, 0.1) == Lossy(0.1)
        assert decide(use, FACTS, "Lossless", 65536, 0.1) == KeepPlain("ModeLossless")
        assert decide(use, FACTS, "ErrorBounded", 65536, None) == KeepPlain("NoBound")
        assert decide(use, FACTS, "ErrorBounded", 65536, 0.1, held=True) == KeepPlain("HeldElsewhere")


@pytest.mark.parametrize("use", Use)
def test_other_modes_never_change_a_value(use):
    assert decide(use, FACTS, "None", 0, 0.1) == KeepPlain("ModeNone")
    assert not isinstance(decide(use, FACTS, "Lossless", 0, 0.1), Lossy)


@pytest.mark.parametrize("mode", ["Lossless", "ErrorBounded"])
def test_what_is_not_read_is_not_kept(mode):
    boolean, constant = TensorFacts(100_000, False, True, boolean=True), TensorFacts(100_000, True, True, constant=True)
    assert decide(Use.SHAPE, FACTS, mode, 65536, 0.1) is Exact.NOTHING
    assert decide(Use.INDICES, TensorFacts(100_000, False, True), mode, 65536, 0.1) is Exact.CELLS
    assert decide(Use.VALUES, boolean, mode, 65536, 0.1) is Exact.BITS
    assert decide(Use.VALUES, constant, mode, 65536, 0.1) is Exact.TRY_BITS
    assert decide(Use.VALUES, replace(constant, replayable=True), mode, 65536, 0.1) is Exact.REPLAY
    assert decide(Use.VALUES, replace(constant, constant=False, replayable=True), mode, 65536, 0.1) == KeepPlain("ValuesNeeded")
    assert decide(Use.SIGN, FACTS, mode, 65536, 0.1) is WAITS


@pytest.mark.parametrize(
    ("facts", "bound", "reason"),
    [
        (FACTS, None, "NoBound"),
        (TensorFacts(100_000, True, False), 0.1, "PartOfStorage"),
        (TensorFacts(100_000, False, True), 0.1, "OtherType"),
        (TensorFacts(65_535, True, True), 0.1, "Small"),
    ],
)
def test_reasons(facts, bound, reason):
    assert decide(Use.WEIGHT_GRADIENT, facts, "ErrorBounded", 65536, bound) == KeepPlain(reason)


def test_a_waiting_tensor_is_one_that_could_be_compressed():
    for nbytes, lossy_type, whole in itertools.product((10, 100_000), (True, False), (True, False)):
        verdict = decide(Use.SIGN, TensorFacts(nbytes, lossy_type, whole), "ErrorBounded", 65536, None)
        assert (verdict is WAITS) == (nbytes >= 65536 and lossy_type)
