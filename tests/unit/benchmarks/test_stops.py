"""Whom kompakt stops for whom: noted without changing anything, and told by what the ranks say."""

from dataclasses import replace

import pytest

from benchmarks import stops
from benchmarks.policies import BASE
from benchmarks.stops import KnownLives, Side, Stop
from kompakt_core.policy.order import BINS
from kompakt_simulator.cluster import ClusterShape, ClusterState
from kompakt_simulator.jobs import Milliseconds, TraceJob
from kompakt_simulator.network import Network
from kompakt_simulator.placements import PLACEMENTS
from kompakt_simulator.policies import POLICIES
from kompakt_simulator.simulation import simulate

HOUR = 3_600_000
SHAPE, FREE = ClusterShape.grid(1, 1, 4), Network({}, {})


def job(number: int, submit_h: float, hours: float) -> TraceJob:
    return TraceJob(number, Milliseconds(round(submit_h * HOUR)), Milliseconds(round(hours * HOUR)), 4)


def side(gpus: int = 4, service: float = 0.0, rank: int = 0) -> Side:
    return Side(0, gpus, service, rank)


LONG_AND_NEW = [job(0, 0, 10), job(1, 3, 1)]


def test_a_stop_is_noted_with_what_both_have_had_and_how_both_rank() -> None:
    _, noted = stops.watched(LONG_AND_NEW, SHAPE, FREE)
    stop = noted[0]
    assert (stop.at, stop.stopped.number, stop.comes.number) == (3 * HOUR, 0, 1)
    assert (stop.stopped.service, stop.comes.service) == (12, 0)
    assert stop.stopped.rank > stop.comes.rank


def test_watching_changes_nothing() -> None:
    seen, noted = stops.watched(LONG_AND_NEW, SHAPE, FREE)
    unseen = simulate(LONG_AND_NEW, ClusterState.of(SHAPE), POLICIES["kompakt"], PLACEMENTS["levels"], BASE)
    assert seen == unseen
    assert len(noted) == seen.preemptions > 0


def test_who_knows_that_all_jobs_live_equally_long_stops_none_for_a_new_one() -> None:
    jobs = [job(0, 0, 10), job(1, 3, 10)]
    assert stops.watched(jobs, SHAPE, FREE)[1]
    assert not stops.watched(jobs, SHAPE, FREE, KnownLives([40.0] * 10_000))[1]


def test_services_are_gpu_hours_with_communication() -> None:
    result, _ = stops.watched(LONG_AND_NEW, SHAPE, FREE)
    spread = replace(result.finished[0], comm=HOUR / 2)
    assert stops.services([*result.finished, spread]) == [4, 40, 6]


@pytest.mark.parametrize(("gpus", "more", "entered"), [(4, 0.0, True), (4, 0.33, True), (4, 0.34, False), (32, 0.34, True)])
def test_a_bin_is_just_entered_until_the_next_look(gpus: int, more: float, entered: bool) -> None:
    edge = next(begun for begun in BINS if begun == 512)
    assert side(gpus, edge + more).entered is entered


def test_a_job_without_service_has_entered_no_bin() -> None:
    assert not side(service=0).entered


def test_the_commonest_pairs_of_sizes_come_first_and_all_before_them(capsys: pytest.CaptureFixture[str]) -> None:
    at_edge, inside, new = side(32, 512, 7), side(32, 600, 5), side(32, 0, 0)
    noted = [Stop(0, at_edge, side(32, 400, 5)), Stop(1, inside, side(8, 300, 5)), Stop(2, at_edge, new)]
    stops.report(noted, 1)
    assert capsys.readouterr().out.splitlines()[-2:] == ["| all | 3 | 1 | 2 | 1 |", "| 32 GPUs, for 32 | 2 | 0 | 2 | 1 |"]


def test_a_bin_just_entered_is_no_reason_where_both_rank_alike(capsys: pytest.CaptureFixture[str]) -> None:
    stops.report([Stop(0, side(32, 512, 5), side(32, 400, 5))], 0)
    assert capsys.readouterr().out.splitlines()[-1] == "| all | 1 | 1 | 0 | 0 |"
