"""What has no row is counted by place, the largest first."""

from kompakt_runtime.uses.unknown import HIDDEN, UnknownReaders


def test_places_are_listed_by_bytes():
    unknown = UnknownReaders()
    unknown.add("CumprodBackward0.self", 10)
    unknown.add(HIDDEN, 100)
    unknown.add("CumprodBackward0.self", 20)
    assert unknown.rows() == [(HIDDEN, 1, 100), ("CumprodBackward0.self", 2, 30)]
