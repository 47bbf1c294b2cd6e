"""The words of annotations are those of the TrainingJob's fields that they come from, and those that the command takes."""

from enum import StrEnum

import pytest

from kompakt_cli import place
from kompakt_core.contract import words
from kompakt_core.job import model


@pytest.mark.parametrize(
    ("own", "theirs"),
    [
        (words.Policy, model.PolicyName),
        (words.Level, model.LevelName),
        (words.BandwidthSensitivity, model.Sensitivity),
        (words.LinkDemand, model.RequiredLink),
        (words.BandwidthSensitivity, place.SensitivityOption),
        (words.LinkDemand, place.RequiredLinkOption),
    ],
)
def test_a_word_is_the_same_wherever_it_is_said(own: type[StrEnum], theirs: type[StrEnum]) -> None:
    assert [str(word) for word in own] == [str(word) for word in theirs]
