"""What a pod says of a gang that no TrainingJob made."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kompakt_core import contract as c
from kompakt_core.contract import gang_member
from kompakt_core.contract.gang_member import MAX_SIZE, GangMember
from kompakt_core.contract.words import Level
from kompakt_core.errors import InvalidInput
from kompakt_core.job.choices import MAX_WORKERS

LABELS = {c.LABEL_GANG: "train"}


def notes(size: str | None = "4", level: str | None = None) -> dict[str, str]:
    given = {c.ANN_GANG_SIZE: size, c.ANN_REQUIRED_LEVEL: level}
    return {key: text for key, text in given.items() if text is not None}


def test_a_pod_without_the_label_belongs_to_no_gang() -> None:
    assert gang_member.decode({}, notes()) is None
    assert gang_member.name({}) == ""


def test_size_and_level_are_read() -> None:
    assert gang_member.decode(LABELS, notes()) == GangMember(4)
    assert gang_member.decode(LABELS, notes(level="Rack")) == GangMember(4, Level.RACK)
    assert gang_member.name(LABELS) == "train"


@pytest.mark.parametrize("label", ["", "Train", "a.b", "-a", "a-", "a_b", "ä", "a" * 64])
def test_a_label_that_cannot_name_an_object_is_refused_with_what_would_be_right(label: str) -> None:
    assert gang_member.name({c.LABEL_GANG: label}) == ""
    with pytest.raises(InvalidInput, match="lowercase letters, digits and dashes"):
        gang_member.decode({c.LABEL_GANG: label}, notes())


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (notes(size=None), f"{c.ANN_GANG_SIZE}: None is not a whole number of pods"),
        (notes(size="four"), "'four' is not a whole number of pods"),
        (notes(size="0"), f"a gang of 0 pods; right would be 1 to {MAX_SIZE}"),
        (notes(size="10000"), "a gang of 10000 pods"),
        (notes(level="Room"), f"{c.ANN_REQUIRED_LEVEL}: 'Room' is not known; right would be Block, Cluster, Machine, Rack"),
    ],
)
def test_what_cannot_be_read_is_told_with_what_would_be_right(given: dict[str, str], told: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        gang_member.decode(LABELS, given)
    assert told in str(caught.value)


def test_a_gang_is_as_large_as_a_training_job_at_most() -> None:
    assert MAX_SIZE == MAX_WORKERS


@given(st.dictionaries(st.sampled_from([c.LABEL_GANG, "other"]), st.text()), st.dictionaries(
    st.sampled_from([c.ANN_GANG_SIZE, c.ANN_REQUIRED_LEVEL]), st.text() | st.integers().map(str)))  # fmt: skip
def test_any_text_is_read_or_refused(labels: dict[str, str], annotations: dict[str, str]) -> None:
    try:
        found = gang_member.decode(labels, annotations)
    except InvalidInput:
        return
    assert (found is None) == (c.LABEL_GANG not in labels)
    assert found is None or 1 <= found.size <= MAX_SIZE
