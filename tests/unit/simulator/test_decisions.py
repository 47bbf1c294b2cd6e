"""Who held which GPUs from when to when: whatever makes the simulator faster leaves every decision as it was.

A figure that changes here is right only together with a rule that was meant to change.
"""

import hashlib
import random

import pytest

from kompakt_core.placement.model import Level
from kompakt_simulator.cluster import ClusterShape, ClusterState
from kompakt_simulator.jobs import Milliseconds, TraceJob
from kompakt_simulator.network import FREE, Network
from kompakt_simulator.placements import levels
from kompakt_simulator.policies import POLICIES
from kompakt_simulator.setting import Setting
from kompakt_simulator.simulation import SimulationResult, simulate

CONGESTED = Network({Level.MACHINE: 0.05, Level.RACK: 1, Level.CLUSTER: 32})


def busy() -> list[TraceJob]:
    """From seconds to a day, half of them gangs up to a machine and a half, more at a time than the cluster holds."""
    chance = random.Random(1)
    times = [(chance.randrange(500_000), round(60_000 * 1440 ** chance.random())) for _ in range(300)]
    requests = [(chance.choice((1, 1, 1, 2, 4, 8, 12)), chance.choice((0.06, 0.3, 0.6))) for _ in times]
    return [
        TraceJob(number, Milliseconds(submit * 1000), Milliseconds(duration), gpus, comm_ratio=ratio)
        for number, ((submit, duration), (gpus, ratio)) in enumerate(zip(times, requests, strict=True))
    ]


def fingerprint(outcome: SimulationResult) -> str:
    """Of every stretch of every job."""
    told = "\n".join(f"{each.number} {each.start} {each.end} {each.gpus:x}" for each in outcome.stretches)
    return hashlib.sha256(told.encode()).hexdigest()[:12]


@pytest.mark.parametrize(
    ("policy", "flat", "congested"),
    [
        ("fifo", "64a5b79634e0", "562f404b9cb5"),
        ("fifo-skip", "04e05ab8a32d", "95166ef311c8"),
        ("sjf", "8c76034e4f48", "a9194c0a23a7"),
        ("srtf", "bd857ba0563a", "f4d7704354f2"),
        ("las", "82898c056b9c", "fec90184b120"),
        ("tiresias", "9a0dcdc41fd4", "1788be58e21d"),
        ("gandiva", "edae0221617f", "33bfdb94e18c"),
        ("dally", "cc5afa0dafb4", "d85a016a0e6f"),
        ("no-wait", "e28bca9cfa4c", "eba3f6a3877e"),
        ("never-relax", "7a31c0b07595", "c83cca5d3974"),
        ("kompakt", "ca3aadfd325c", "335dbcc15e78"),
    ],
)
def test_decisions_are_those_of_always(policy: str, flat: str, congested: str) -> None:
    cluster = ClusterState.of(ClusterShape.grid(2, 2, 8))
    for network, expected in ((FREE, flat), (CONGESTED, congested)):
        outcome = simulate(busy(), cluster, POLICIES[policy], levels, Setting(network=network))
        assert (network is FREE, fingerprint(outcome)) == (network is FREE, expected)
