"""How far a training is: what is read, what is estimated, and what of it the status shows."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kompakt_core.contract import timestamps
from kompakt_core.job import progress
from kompakt_core.job.pods import WorkerPod
from kompakt_core.job.progress import Progress, Sample

PAGE = """# HELP kompakt_progress_step Optimizer steps done, as the script says.
# TYPE kompakt_progress_step gauge
kompakt_progress_step 120
kompakt_progress_total_steps 1000
kompakt_progress_loss 0.53
kompakt_progress_samples_per_second 812.4
something_else{label="x"} 7
"""


def test_a_page_is_read_by_the_names_that_count() -> None:
    assert progress.read_page(PAGE) == Progress(120, 1000, 0.53, 812.4)
    assert progress.read_page(PAGE.replace("kompakt_progress_step 120", "kompakt_progress_step x")) is None
    assert progress.read_page("") is None


@pytest.mark.parametrize(
    ("values", "found"),
    [
        ({"step": 3}, Progress(3)),
        ({"step": 3.0, "total": 2.5}, Progress(3)),
        ({"step": True}, None),
        ({"step": -1}, None),
        ({"step": 10**400}, None),
        ({"step": float("nan")}, None),
        ({"step": 1, "samplesPerSecond": float("inf"), "loss": "low"}, Progress(1)),
        ({"step": 1, "samplesPerSecond": 1.1e12}, Progress(1)),
        ({"step": 1, "samplesPerSecond": 1e12}, Progress(1, samples_per_second=1e12)),
    ],
)
def test_what_is_malformed_counts_as_not_said(values: dict[str, Any], found: Progress | None) -> None:
    assert progress.read(values) == found


def test_the_end_is_estimated_from_the_rate_of_the_samples() -> None:
    samples = [Sample(1000.0, 40), Sample(1030.0, 50), Sample(1060.0, 70)]
    assert progress.eta(samples, 100) == pytest.approx(1060 + 30 * 2)
    assert progress.eta(samples[:1], 100) is None, "one sample knows no rate"
    assert progress.eta(samples, None) is None
    assert progress.eta([Sample(1000.0, 40), Sample(1030.0, 40)], 100) is None, "it stands still"
    assert progress.eta(samples, 60) is None, "it is past what it called the end"


@given(st.lists(st.builds(Sample, st.floats(0, 4e9), st.integers(0, 1 << 53)), max_size=4), st.none() | st.integers(0, 1 << 53))
def test_an_estimate_is_a_moment_that_can_be_written_or_none(samples: list[Sample], total: int | None) -> None:
    end = progress.eta(samples, total)
    written = progress.written(Progress(1, total), end)
    assert ("eta" in written) == (end is not None)


def test_the_status_holds_numbers_with_a_fraction_as_text() -> None:
    figures = {"step": 7, "total": 9, "loss": "0.123457", "samplesPerSecond": "812", "eta": "1970-01-01T00:00:00Z"}
    assert progress.written(Progress(7, 9, 0.123456789, 812.0), 0.0) == figures
    assert progress.written(Progress(7, None, math.nan), None) == {"step": 7, "loss": "nan"}


def worker(index: int, message: str) -> WorkerPod:
    return WorkerPod(f"j-worker-{index}-a1", f"u{index}", 1, "worker", index, phase="Succeeded", reports=(message,))


def test_at_the_end_the_first_worker_that_left_a_figure_counts() -> None:
    two, one = '{"kompakt": 1, "progress": {"step": 5}}', '{"kompakt": 1, "progress": {"step": 9, "total": 9}}'
    assert progress.at_the_end([worker(2, two), worker(1, one), worker(0, "bye")]) == {"step": 9, "total": 9}
    assert progress.at_the_end([worker(0, '{"kompakt": 1, "progress": [1]}')]) == {}


@given(st.text())
def test_no_page_breaks_the_reader(text: str) -> None:
    progress.read_page(text)
    progress.read_page(f"kompakt_progress_step 1\nkompakt_progress_loss {text}")


@pytest.mark.parametrize(
    ("before", "slowdown", "left"),
    [
        ({"step": 5, "total": 10, "eta": timestamps.encode(4600.0)}, 0.0, 3600),
        ({"eta": timestamps.encode(4600.0)}, 0.5, 2400),
        ({"eta": timestamps.encode(999.0)}, 0.0, 0),
        ({"remainingSeconds": 70}, 0.5, 70),
        ({"step": 5, "total": 10}, 0.0, None),
        ({"eta": "soon", "remainingSeconds": -3}, 0.0, None),
    ],
)
def test_the_next_attempt_begins_with_what_was_left(before: dict[str, Any], slowdown: float, left: int | None) -> None:
    stopped = progress.halted(before, slowdown, 1000.0)
    assert stopped.get("step") == before.get("step")
    assert "eta" not in stopped
    assert progress.halted(stopped, slowdown, 5000.0) == stopped, "while it stops nothing changes"
    assert progress.begun(stopped) == ({} if left is None else {"remainingSeconds": left})


def test_a_disrupted_or_suspended_job_keeps_how_much_is_left_until_it_speaks_again(world_of: Any) -> None:
    world = world_of(communication={"pattern": "Ring"}).run()
    told = {"step": 5, "total": 10, "eta": timestamps.encode(world.now + 3000)}
    profile = {"source": "Steps", "communication": "0.5", "sensitivity": "High"}
    world.stored |= {"progress": told, "profile": profile, "scheduling": {"plan": {"level": "Rack"}}}
    world.pods.clear()
    world.settle()
    assert (world.status.attempt, world.stored["progress"]) == (2, {"remainingSeconds": 2000})
    world.stored["progress"] = told
    world.suspend()
    assert world.stored["progress"] == {"step": 5, "total": 10, "remainingSeconds": 2000}
    world.now += 9999
    world.suspend(False)
    assert (world.status.attempt, world.stored["progress"]) == (3, {"remainingSeconds": 2000})
