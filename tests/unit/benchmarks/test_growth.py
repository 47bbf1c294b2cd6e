"""Growth: lengths that differ in what they say they differ in, and counts that a clock cannot move."""

import gc
import math

import pytest

from benchmarks.growth import WAYS, Work, counted, exponent, n_log_n, of_length, repeated
from kompakt_simulator.cluster import ClusterState
from kompakt_simulator.jobs import Milliseconds, TraceJob
from kompakt_simulator.placements import PLACEMENTS
from kompakt_simulator.policies import POLICIES
from kompakt_simulator.simulation import simulate
from kompakt_simulator.traces.reading import load_trace

TRACE = [TraceJob(number, Milliseconds(at), Milliseconds(50 + number), 1 + number) for number, at in enumerate((10, 20, 20, 70))]


def shape_of(jobs: list[TraceJob]) -> list[tuple[int, int, int]]:
    return [(job.submit - jobs[0].submit, job.duration, job.gpus) for job in jobs]


def test_a_repeated_trace_has_the_same_jobs_in_the_same_bursts_each_time() -> None:
    jobs = repeated(TRACE, 3)
    assert [shape_of(jobs[start : start + 4]) for start in (0, 4, 8)] == [shape_of(TRACE)] * 3
    assert jobs[:4] == TRACE


def test_copies_follow_one_mean_gap_after_the_last_submission() -> None:
    jobs = repeated(TRACE, 3)
    assert [jobs[start].submit for start in (0, 4, 8)] == [10, 90, 170]  # 60 ms in three gaps of 20
    assert [job.submit for job in jobs] == sorted(job.submit for job in jobs)


def test_numbers_stay_distinct_where_they_have_holes() -> None:
    holes = [TraceJob(number, Milliseconds(0), Milliseconds(1), 1) for number in (7, 3)]
    assert [job.number for job in repeated(holes, 3)] == [7, 3, 15, 11, 23, 19]


def test_each_length_is_twice_the_one_before() -> None:
    for way in WAYS:
        assert [len(of_length(TRACE, way, index, 3)) for index in range(3)] == [1, 2, 4]
    assert of_length(TRACE, "first", 2, 3) == of_length(TRACE, "thin", 2, 3) == TRACE


def test_what_is_repeated_is_the_beginning() -> None:
    assert of_length(TRACE, "repeat", 0, 2) == of_length(TRACE, "first", 0, 2) == TRACE[:2]
    assert of_length(TRACE, "repeat", 1, 2) == repeated(TRACE[:2], 2)


def test_a_thinned_trace_keeps_its_jobs_an_hour() -> None:
    assert [(job.number, job.submit) for job in of_length(TRACE, "thin", 1, 3)] == [(0, 5), (2, 10)]


def test_exponents_are_those_of_known_growth() -> None:
    assert math.isclose(exponent(8, 2), 3)
    assert math.isclose(n_log_n(1024, 2048), 1 + math.log2(11 / 10))


def test_the_collector_adds_no_calls() -> None:
    def told(_phase: str, _info: dict[str, int]) -> None:
        pass

    plain = counted(lambda: [[] for _ in range(100_000)])[1]
    gc.callbacks.append(told)
    try:
        assert counted(lambda: [[] for _ in range(100_000)])[1] == plain
    finally:
        gc.callbacks.remove(told)
    assert gc.isenabled()


def work_of(policy: str) -> Work:
    jobs = load_trace("tiresias-60").jobs
    return counted(lambda: simulate(jobs, ClusterState.empty(4, 4), POLICIES[policy], PLACEMENTS["levels"]))[1]


@pytest.mark.parametrize("policy", ["fifo", "las", "tiresias", "dally", "kompakt"])
def test_work_is_counted_alike_each_time_and_sees_every_policy(policy: str) -> None:
    first, second = work_of(policy), work_of(policy)
    assert first == second
    assert first.asked >= 60 or policy == "kompakt", "each job was asked at least once"
    assert first.places >= 60
    assert first.calls > first.asked + first.places
