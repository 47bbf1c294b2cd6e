"""With declared totals `kompakt` stops jobs for a gang where what they still need, together, makes that pay."""

from dataclasses import replace

import pytest

from kompakt_core.placement.model import Level
from kompakt_simulator.cluster import ClusterShape, ClusterState
from kompakt_simulator.jobs import Milliseconds, TraceJob
from kompakt_simulator.network import Network
from kompakt_simulator.placements import levels
from kompakt_simulator.policies import POLICIES
from kompakt_simulator.setting import Knowledge, Setting, parse_rules
from kompakt_simulator.simulation import SimulationResult, simulate

HOUR = 3600
NETWORK = Network({Level.MACHINE: 0, Level.RACK: 1, Level.CLUSTER: 32}, unnamed=(0.5,))


def job(number: int, submit_s: int, duration_s: int, gpus: int, priority: int = 0) -> TraceJob:
    return TraceJob(number, Milliseconds(submit_s * 1000), Milliseconds(duration_s * 1000), gpus, priority=priority)


def run(*jobs: TraceJob, machines: int = 1) -> SimulationResult:
    setting = Setting(network=NETWORK, knowledge=Knowledge.DECLARED)
    return simulate(jobs, ClusterState.of(ClusterShape.grid(1, machines, 8)), POLICIES["kompakt"], levels, setting)


@pytest.mark.parametrize(
    ("rests", "stops"),
    [
        ((20 * HOUR,), 1),  # one job of eight GPUs is stopped for less than its rest
        ((20 * HOUR, 20 * HOUR), 2),  # two wait 4 h each, against 20
        ((20 * HOUR, 5 * HOUR, 5 * HOUR, 5 * HOUR), 4),  # four wait 4 h each, still against 20
        ((20 * HOUR, 5 * HOUR, 5 * HOUR, HOUR), 3),  # one would end before the gang: it does, then the others are stopped
        ((4 * HOUR + 39,), 1),  # the gang's rest, 30 s of starting again and 8 of a checkpoint
        ((4 * HOUR + 37,), 0),
        ((12 * HOUR,) * 4, 0),  # four wait 4 h each: more than the 12 that the gang would
    ],
)
def test_the_rests_of_all_victims_decide_not_the_gpu_time_of_each(rests: tuple[int, ...], stops: int) -> None:
    began = 3 * HOUR
    jobs = [job(number, 0, began + rest, 8 // len(rests)) for number, rest in enumerate(rests)]
    assert run(*jobs, job(9, began, 4 * HOUR, 8)).preemptions == stops


def test_a_rest_is_as_long_as_communication_makes_it() -> None:
    network = Network({Level.MACHINE: 1, Level.RACK: 1, Level.CLUSTER: 32}, unnamed=(0.0,))
    setting = Setting(network=network, knowledge=Knowledge.DECLARED)
    slow = replace(job(1, 3 * HOUR, 4 * HOUR, 8), comm_ratio=1.0)  # 8 h, against 7 h that the other has left
    cluster = ClusterState.of(ClusterShape.grid(1, 1, 8))
    assert simulate([job(0, 0, 10 * HOUR, 8), slow], cluster, POLICIES["kompakt"], levels, setting).preemptions == 0


def test_a_gang_and_a_shorter_job_do_not_stop_each_other_in_turn() -> None:
    elsewhere = job(0, 0, 900 * HOUR, 8, priority=5)
    long, short = job(1, 0, 103 * HOUR, 7), job(2, 0, 6 * HOUR, 1)
    assert run(elsewhere, long, short, job(3, 3 * HOUR, 12 * HOUR, 8), machines=2).preemptions == 1


def test_a_job_that_ends_in_this_millisecond_has_no_rest_below_zero() -> None:
    network = Network({Level.MACHINE: 0.05, Level.RACK: 1, Level.CLUSTER: 4}, unnamed=(0.3,))  # .015 inside a machine
    setting = Setting(network=network, knowledge=Knowledge.ORACLE, rules=parse_rules("passes=event"))
    both = [TraceJob(number, Milliseconds(0), Milliseconds(7_389_162), 4) for number in range(2)]
    gang = TraceJob(2, Milliseconds(1), Milliseconds(600_000), 8)
    outcome = simulate([*both, gang], ClusterState.of(ClusterShape.grid(1, 1, 8)), POLICIES["kompakt"], levels, setting)
    assert (len(outcome.finished), outcome.preemptions) == (3, 0)
