"""Communication as a share of computing, and the word for it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kompakt_core.job.model import Sensitivity
from kompakt_core.profile.sensitivity import MOST, WORDS, communication, word_for
from tests.support.core.outcomes import refusal

MANY = 1 << 20  # GPUs: 2 (n - 1) / n is 2


@pytest.mark.parametrize(
    ("model", "megabytes", "milliseconds", "share", "word"),
    [
        ("AlexNet", 244.4, 60.7, 0.64, "High"),
        ("VGG11", 531.4, 247.7, 0.34, "High"),
        ("MobileNetV3", 9.87, 9.9, 0.16, "Medium"),
        ("ResNet18", 46.7, 147.4, 0.05, "Low"),
        ("ResNet50", 102.0, 348.2, 0.05, "Low"),
    ],
)
def test_models_whose_layer_files_are_public(model: str, megabytes: float, milliseconds: float, share: float, word: str) -> None:
    found = communication(round(megabytes * 1e6), milliseconds / 1000, MANY)
    assert found == pytest.approx(share, abs=0.005), model
    assert word_for(found) == word


def test_each_word_begins_at_its_threshold_and_is_one_of_the_jobs() -> None:
    for (word, least), below in zip(WORDS, [*(name for name, _ in WORDS[1:]), "None"], strict=True):
        assert (word_for(least), word_for(least - 1e-9)) == (word, below)
        assert word in set(Sensitivity)


@given(st.integers(2, 512), st.floats(0.001, 10), st.floats(0, 0.9), st.floats(0, 32))
def test_the_level_of_the_measurement_is_taken_out_again(gpus: int, computing: float, share: float, factor: float) -> None:
    """A step measured as the simulator's model has it, at any level, gives the share that went in."""
    exchanged = share * computing * 12.5e9 * gpus / (2 * (gpus - 1))
    step = computing * (1 + share * factor)
    assert communication(round(exchanged), step, gpus, factor) == pytest.approx(share, rel=1e-4, abs=1e-6)


def test_the_ends_of_the_scale() -> None:
    assert communication(10**12, 1.0, 1) == 0, "a single GPU talks to nobody"
    assert communication(0, 1.0, 8) == 0
    assert communication(10**12, 0.001, 8) == MOST
    assert communication(10**10, 1.0, 8, level_factor=4) == MOST, "all of the step and more would be communication"


@pytest.mark.parametrize(
    "bad", [(-1, 1.0, 2, 0.0), (1, 0.0, 2, 0.0), (1, 1.0, 0, 0.0), (1, float("nan"), 2, 0.0), (1, 1.0, 2, -1.0)]
)
def test_numbers_that_cannot_be_are_refused(bad: tuple[int, float, int, float]) -> None:
    assert "expected bytes and factor from 0 up" in refusal(communication, *bad)
    assert "a share of -1" in refusal(word_for, -1)
