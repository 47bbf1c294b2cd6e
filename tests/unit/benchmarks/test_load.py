"""What the load benchmark reads out of the operator's histogram, the API server's metrics and its tables."""

import json

import pytest

from benchmarks import load
from benchmarks.costs import Costs, read_requests
from benchmarks.load import Waiting, buckets, phases, quantile
from kompakt_operator.health import OperatorHealth


def text_after(*seconds: float) -> str:
    pulse = OperatorHealth()
    for each in seconds:
        pulse.reconciled("done", each)
    return pulse.text()


@pytest.mark.parametrize(
    ("share", "bounds"), [(0.5, (0.01, 0.025)), (0.98, (0.01, 0.025)), (0.99, (0.25, 0.5)), (1.0, (10.0, float("inf")))]
)
def test_a_share_of_reconciliations_lies_between_two_bounds(share: float, bounds: tuple[float, float]) -> None:
    durations = [0.02] * 98 + [0.3] + [60.0]
    assert quantile({}, buckets(text_after(*durations)), share) == bounds


def test_what_was_before_the_first_reading_does_not_count() -> None:
    before, after = buckets(text_after(9.0, 9.0)), buckets(text_after(9.0, 9.0, 0.001))
    assert quantile(before, after, 0.99) == (0.0, 0.005)


METRICS = """# TYPE apiserver_request_total counter
apiserver_request_total{code="201",dry_run="",resource="pods",subresource="binding",verb="POST"} 7
apiserver_request_total{code="200",dry_run="",resource="pods",subresource="",verb="GET"} 5
apiserver_request_total{code="504",dry_run="",resource="pods",subresource="",verb="GET"} 2
apiserver_request_total{code="404",dry_run="",resource="nodes",subresource="",verb="GET"} 1
apiserver_request_total{code="200",dry_run="",resource="pods",subresource="",verb="WATCH"} 900
apiserver_request_total_other{code="200",resource="pods",verb="GET"} 900
"""


def test_requests_are_counted_by_what_is_asked_and_failures_apart() -> None:
    asked, failed = read_requests(METRICS)
    assert asked == {"POST pods/binding": 7, "GET pods": 7, "GET nodes": 1}
    assert failed == {"GET pods 504": 2}


def test_costs_of_a_part_are_what_came_to_them_and_a_restarted_program_begins_anew() -> None:
    before = Costs({"etcd": 10.0, "operator-0": 50.0}, {"GET pods": 5}, {})
    part = Costs({"etcd": 12.5, "operator-0": 3.0}, {"GET pods": 6, "LIST pods": 1}, {"GET pods 504": 1}).since(before)
    assert part.seconds == {"etcd": 2.5, "operator-0": 3.0}
    assert part.requests == {"GET pods": 1, "LIST pods": 1}
    first, second, third = part.lines()
    assert first.endswith("operator-0 3, etcd 2")
    assert "requests: 2, of which" in second
    assert "GET pods 504" in third


def test_jobs_are_counted_by_the_phase_in_their_table() -> None:
    columns = [{"name": name} for name in ("Name", "Phase", "Level")]
    rows = [{"cells": [name, phase, None]} for name, phase in (("a", "Running"), ("b", None), ("c", "Running"))]
    assert phases(json.dumps({"columnDefinitions": columns, "rows": rows})) == {"Running": 2, "none": 1}
    assert phases(json.dumps({"columnDefinitions": columns, "rows": None})) == {}


def test_a_run_is_given_up_only_when_nothing_changes(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    now = [0.0]
    monkeypatch.setattr(load.time, "monotonic", lambda: now[0])  # type: ignore[attr-defined]
    waiting = Waiting()
    for round_ in range(5):
        now[0] += load.PATIENCE - 1
        waiting.on(f"{round_} of 9")
    assert capsys.readouterr().out.count("of 9") == 5
    now[0] += load.PATIENCE + 1
    with pytest.raises(SystemExit, match="nothing changed for 600 s: 4 of 9"):
        waiting.on("4 of 9")
