"""The figures of an independent small simulator, written for the same rules (docs/decisions/0080)."""

import pytest

from kompakt_simulator.cluster import ClusterState
from kompakt_simulator.figures import Summary, summarize
from kompakt_simulator.placements import PLACEMENTS
from kompakt_simulator.policies import POLICIES
from kompakt_simulator.simulation import simulate
from kompakt_simulator.traces.reading import load_trace


def figures(trace: str, machines: int, gpus: int, policy: str, placement: str) -> Summary:
    jobs = load_trace(trace).jobs
    return summarize(simulate(jobs, ClusterState.empty(machines, gpus), POLICIES[policy], PLACEMENTS[placement]))


@pytest.mark.parametrize(
    ("policy", "jct", "makespan", "wait"),
    [
        ("fifo", 200.817, 3335, 22.400),
        ("fifo-skip", 190.683, 3271, 12.267),
        ("sjf", 195.100, 3437, 16.683),
        ("srtf", 192.117, 3271, 13.700),
    ],
)
def test_tiresias_on_four_machines_of_four_with_any_gpus(policy: str, jct: float, makespan: float, wait: float) -> None:
    summary = figures("tiresias-60", 4, 4, policy, "count")
    assert (round(summary.avg_jct_s, 3), summary.makespan_s, round(summary.avg_queue_s, 3)) == (jct, makespan, wait)
    assert (summary.finished, summary.refused) == (60, 0)


@pytest.mark.parametrize(
    ("policy", "jct", "makespan"),
    [("fifo", 217.517, 3341), ("fifo-skip", 211.450, 3271), ("sjf", 209.533, 3458)],
)
def test_tiresias_on_four_machines_of_four_consolidated(policy: str, jct: float, makespan: float) -> None:
    summary = figures("tiresias-60", 4, 4, policy, "consolidated")
    assert (round(summary.avg_jct_s, 3), summary.makespan_s) == (jct, makespan)


@pytest.mark.parametrize(
    ("policy", "thousand_seconds"),
    [("fifo", 4247.110), ("fifo-skip", 2730.135), ("sjf", 950.345), ("srtf", 829.337)],
)
def test_muri_on_eight_machines_of_eight_with_any_gpus(policy: str, thousand_seconds: float) -> None:
    assert round(figures("muri-trace3-pr", 8, 8, policy, "count").avg_jct_s / 1000, 3) == thousand_seconds
