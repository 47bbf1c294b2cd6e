"""Which decisions cost what: the larger part of a job's later end, its moment, and who got the GPUs."""

from pathlib import Path

import pytest

from benchmarks import losses
from kompakt_core.errors import InvalidInput
from kompakt_core.placement.model import Level
from kompakt_simulator.cluster import ClusterShape, GpuSet
from kompakt_simulator.jobs import Milliseconds, TraceJob
from kompakt_simulator.simulation import FinishedJob, SimulationResult
from kompakt_simulator.world import Stretch

SHAPE = ClusterShape.grid(2, 1, 4)
Span = tuple[int, int, int, int]  # number, start, end, GPUs as a set


def result(*spans: Span, comm: int = 0, restart: int = 0) -> SimulationResult:
    """All jobs submitted at 0; `comm` and `restart`: of job 0."""
    finished = []
    for number in sorted({span[0] for span in spans}):
        own = [span for span in spans if span[0] == number]
        job = TraceJob(number, Milliseconds(0), Milliseconds(1), own[0][3].bit_count())
        held = sum(end - start for _, start, end, _ in own)
        times = Milliseconds(own[0][1]), Milliseconds(own[-1][2])
        lost = (0.0, 0.0) if number else (float(comm), float(restart))
        finished.append(FinishedJob(job, *times, GpuSet(own[-1][3]), held, *lost))
    stretches = tuple(Stretch(number, start, end, GpuSet(gpus)) for number, start, end, gpus in spans)
    return SimulationResult(tuple(finished), (), SHAPE.gpus, stretches=stretches)


def test_a_stop_is_told_with_its_moment_and_with_who_got_the_gpus() -> None:
    other = result((0, 0, 100, 0b1111), (1, 100, 150, 0b1111))
    ours = result((0, 0, 40, 0b1111), (0, 90, 150, 0b1111), (1, 40, 90, 0b1111))
    (loss,) = losses.tracedback(ours, other, SHAPE)
    assert (loss.kind, loss.at, loss.number, loss.cost, loss.of) == ("stopped", 40, 0, 50, "for job 1 of 4 GPUs")


def test_a_job_that_is_not_started_found_no_room_or_waited_for_a_better_place() -> None:
    other = result((0, 0, 100, 0b1111), (1, 0, 100, 0b1111_0000))
    full = result((0, 60, 160, 0b1111), (1, 0, 100, 0b1111_1100))
    room = result((0, 60, 160, 0b1111), (1, 0, 100, 0b1100_0011))
    assert [loss.kind for loss in losses.tracedback(full, other, SHAPE)] == ["found no room at its submission"]
    assert [loss.kind for loss in losses.tracedback(room, other, SHAPE)] == ["waited for its best level at its submission"]


def test_a_worse_place_is_told_where_communication_is_the_larger_part() -> None:
    other = result((0, 0, 100, 0b1111))
    ours = result((0, 10, 200, 0b11_0011), comm=80)
    (loss,) = losses.tracedback(ours, other, SHAPE)
    assert (loss.kind, loss.at, loss.cost) == (f"placed at level {Level.CLUSTER.lower()}", 10, 100)


def test_restarts_are_no_worse_place() -> None:
    other = result((0, 0, 100, 0b1111))
    ours = result((0, 0, 40, 0b1111), (0, 50, 150, 0b1111), restart=40)
    (loss,) = losses.tracedback(ours, other, SHAPE)
    assert (loss.kind, loss.at, loss.cost) == ("restarted", 40, 50)


def test_what_is_no_trace_is_told_before_anything_runs(tmp_path: Path) -> None:
    for name, wanted in ((str(tmp_path / "nosuch"), "nosuch"), (str(tmp_path), "cluster-sim")):
        with pytest.raises(InvalidInput, match=wanted):
            losses.traced(name)


def test_the_jobs_left_over_time_and_the_parts_add_up_to_the_difference() -> None:
    other = result((0, 0, 100, 0b1111), (1, 0, 240, 0b1111_0000))
    ours = result((0, 60, 160, 0b1111), (1, 0, 240, 0b1111_0000))
    assert [left - than for _, left, than in losses.course(ours, other)] == [0, 0, 0, 0, 1, 1, 1, 0, 0, 0, 0]
    assert losses.parts(ours, other) == {"all": [30, 30, 0, 0], "4 GPUs": [30, 30, 0, 0]}


def test_a_column_of_the_protocol_has_its_own_cluster_and_network() -> None:
    jobs, shape, network = losses.of_column("philly-2869ce-congested")
    assert (len(jobs), shape.gpus, network.levels[Level.CLUSTER]) == (315, 64, 32)
    assert losses.on_network("muri-cluster", "congested")[1].gpus == 128


def test_a_column_takes_no_other_network(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.argv", ["losses", "--column", "philly-2869ce-flat", "--network", "flat"])
    with pytest.raises(SystemExit):
        losses.main()
    assert "--network: a column has its own" in capsys.readouterr().err
