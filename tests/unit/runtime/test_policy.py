"""The table of what happens to a saved tensor, walked in full."""

import itertools

import pytest

from kompakt_runtime.policy import WAITS, Facts, Keep, Lossy, Use, decide

FACTS = Facts(nbytes=100_000, lossy_type=True, whole=True)


def test_only_the_input_of_a_linear_operation_is_compressed():
    assert decide(Use.WEIGHT_GRADIENT, FACTS, "ErrorBounded", 65536, 0.1) == Lossy(0.1)
    assert decide(Use.VALUES, FACTS, "ErrorBounded", 65536, 0.1) == Keep("ValuesNeeded")
    assert decide(Use.SIGN, FACTS, "ErrorBounded", 65536, 0.1) is WAITS
    assert decide(Use.WEIGHT_GRADIENT, FACTS, "ErrorBounded", 65536, 0.1, held=True) == Keep("HeldElsewhere")


@pytest.mark.parametrize("mode", ["None", "Lossless"])
@pytest.mark.parametrize("use", Use)
def test_other_modes_never_change_a_value(use, mode):
    assert decide(use, FACTS, mode, 0, 0.1) == Keep(f"Mode{mode}")


@pytest.mark.parametrize(
    ("facts", "bound", "reason"),
    [
        (FACTS, None, "WarmUp"),
        (Facts(100_000, True, False), 0.1, "PartOfStorage"),
        (Facts(100_000, False, True), 0.1, "OtherType"),
        (Facts(65_535, True, True), 0.1, "Small"),
    ],
)
def test_reasons(facts, bound, reason):
    assert decide(Use.WEIGHT_GRADIENT, facts, "ErrorBounded", 65536, bound) == Keep(reason)


def test_a_waiting_tensor_is_one_that_could_be_compressed():
    for nbytes, lossy_type, whole in itertools.product((10, 100_000), (True, False), (True, False)):
        verdict = decide(Use.SIGN, Facts(nbytes, lossy_type, whole), "ErrorBounded", 65536, None)
        assert (verdict is WAITS) == (nbytes >= 65536 and lossy_type)
