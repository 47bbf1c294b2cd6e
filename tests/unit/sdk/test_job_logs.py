"""How far a log was read: nothing twice and nothing lost, wherever a connection breaks."""

from hypothesis import given
from hypothesis import strategies as st

from kompakt.job_logs import Line, Position


@given(st.lists(st.integers(0, 3), min_size=1), st.data())
def test_reading_anew_gives_each_line_once(steps: list[int], data: st.DataObject) -> None:
    """Moments never fall within one log here; several lines may share one, and one second may have many."""
    moments = [sum(steps[: number + 1]) for number in range(len(steps))]
    lines = [
        Line("w", f"2026-01-31T12:00:{m // 4 % 60:02}.{m % 4 * 25:02}Z", str(number)) for number, m in enumerate(moments[:200])
    ]
    lines = lines[: next((i for i, m in enumerate(moments) if m >= 240), len(lines))]
    position, given_out = Position(), list[Line]()
    for broken_after in data.draw(st.lists(st.integers(0, len(lines)), max_size=4)):
        given_out += [line for line in _from(lines, position)[:broken_after] if position.passes(line)]
    given_out += [line for line in _from(lines, position) if position.passes(line)]
    assert given_out == lines


def _from(lines: list[Line], position: Position) -> list[Line]:
    """As the API server answers `sinceTime`: whole seconds."""
    position.reopened()
    since = position.since
    return lines if since is None else [line for line in lines if line.stamp[:19] >= since[:19]]


def test_a_clock_that_is_set_back_loses_no_line() -> None:
    position = Position()
    stamps = ("2026-01-31T12:00:05Z", "2026-01-31T11:00:00Z", "2026-01-31T11:00:00Z")
    assert [position.passes(Line("w", stamp, "")) for stamp in stamps] == [True, True, True]
