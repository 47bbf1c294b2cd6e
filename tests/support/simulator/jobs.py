"""Jobs of a small cluster of machines of four GPUs, and when each ran."""

from kompakt_core.placement.model import Level
from kompakt_simulator.cluster import ClusterShape, ClusterState
from kompakt_simulator.figures import violations_of
from kompakt_simulator.jobs import Milliseconds, TraceJob
from kompakt_simulator.network import Network
from kompakt_simulator.placements import levels
from kompakt_simulator.policies import POLICIES
from kompakt_simulator.setting import Setting
from kompakt_simulator.simulation import simulate

HOUR = 3600
NETWORK = Network({Level.MACHINE: 0.0, Level.RACK: 1.0, Level.CLUSTER: 4.0})
SETTING = Setting(network=NETWORK)


def job(number: int, submit_s: float, duration_s: float, gpus: int, ratio: float = 0.5) -> TraceJob:
    return TraceJob(number, Milliseconds(int(submit_s * 1000)), Milliseconds(int(duration_s * 1000)), gpus, comm_ratio=ratio)


def run(
    policy: str, *jobs: TraceJob, racks: int = 1, machines: int = 2, setting: Setting = SETTING
) -> dict[int, tuple[float, float]]:
    outcome = simulate(jobs, ClusterState.of(ClusterShape.grid(racks, machines, 4)), POLICIES[policy], levels, setting)
    assert violations_of(outcome) == []
    return {done.job.number: (done.start / 1000, done.end / 1000) for done in outcome.finished}
