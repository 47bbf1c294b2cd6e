"""With declared totals `kompakt` stops jobs for a gang where what they still need, together, makes that pay."""

import pytest

from kompakt_core.placement.model import Level
from kompakt_simulator.cluster import ClusterShape, ClusterState
from kompakt_simulator.jobs import Milliseconds, TraceJob
from kompakt_simulator.network import Network
from kompakt_simulator.placements import levels
from kompakt_simulator.policies import POLICIES
from kompakt_simulator.setting import Knowledge, Setting
from kompakt_simulator.simulation import SimulationResult, simulate

HOUR = 3600
NETWORK = Network({Level.MACHINE: 0, Level.RACK: 1, Level.CLUSTER: 32}, unnamed=(0.5,))


def job(number: int, submit_s: int, duration_s: int, gpus: int) -> TraceJob:
    return TraceJob(number, Milliseconds(submit_s * 1000), Milliseconds(duration_s * 1000), gpus)


def run(*jobs: TraceJob) -> SimulationResult:
    setting = Setting(network=NETWORK, knowledge=Knowledge.DECLARED)
    return simulate(jobs, ClusterState.of(ClusterShape.grid(1, 1, 8)), POLICIES["kompakt"], levels, setting)


@pytest.mark.parametrize(
    ("rests", "stops"),
    [
        ((20 * HOUR,), 1),  # one job of eight GPUs is stopped for less than its rest
        ((20 * HOUR, 20 * HOUR), 2),  # two wait 4 h each, against 20
        ((20 * HOUR, HOUR, HOUR, HOUR), 4),  # four wait 4 h each, still against 20
        ((12 * HOUR,) * 4, 0),  # four wait 4 h each: more than the 12 that the gang would
    ],
)
def test_the_rests_of_all_victims_decide_not_the_gpu_time_of_each(rests: tuple[int, ...], stops: int) -> None:
    began = 3 * HOUR
    jobs = [job(number, 0, began + rest, 8 // len(rests)) for number, rest in enumerate(rests)]
    assert run(*jobs, job(9, began, 4 * HOUR, 8)).preemptions == stops
