"""Who held which GPUs from when to when: whatever makes the simulator faster leaves every decision as it was.

A figure that changes here is right only together with a rule that was meant to change.
"""

import hashlib
import random

import pytest

from kompakt_core.placement.model import Level
from kompakt_simulator.cluster import Cluster, Shape
from kompakt_simulator.network import FREE, Network
from kompakt_simulator.placements.levels import levels
from kompakt_simulator.policies.table import POLICIES
from kompakt_simulator.setting import Setting
from kompakt_simulator.simulation import Outcome, simulate
from kompakt_simulator.trace import Job, Milliseconds

CONGESTED = Network({Level.MACHINE: 0.05, Level.RACK: 1, Level.CLUSTER: 32})


def busy() -> list[Job]:
    """From seconds to a day, half of them gangs up to a machine and a half, more at a time than the cluster holds."""
    chance = random.Random(1)
    times = [(chance.randrange(500_000), round(60_000 * 1440 ** chance.random())) for _ in range(300)]
    return [
        Job(number, Milliseconds(submit * 1000), Milliseconds(duration), chance.choice((1, 1, 1, 2, 4, 8, 12)), comm_ratio=0.3)
        for number, (submit, duration) in enumerate(times)
    ]


def fingerprint(outcome: Outcome) -> str:
    """Of every stretch of every job."""
    told = "\n".join(f"{each.number} {each.start} {each.end} {each.gpus:x}" for each in outcome.stretches)
    return hashlib.sha256(told.encode()).hexdigest()[:12]


@pytest.mark.parametrize(
    ("policy", "flat", "congested"),
    [
        ("fifo", "361eecc57c83", "cc6328f1fd2c"),
        ("fifo-skip", "53906922750b", "05c784abbb36"),
        ("sjf", "df3cdef7bc9a", "1c8e87ff4a82"),
        ("srtf", "620cf58514c4", "1969359afbb7"),
        ("las", "6c2dac8feb41", "82dd42243bcd"),
        ("tiresias", "e4b90d9e5eb6", "276bfbd8f5b7"),
        ("gandiva", "4fe64ce90761", "cbda9de8761c"),
        ("dally", "d6c596306810", "c81bf8bf51d2"),
        ("no-wait", "545c26f16cff", "728f67ef0827"),
        ("never-relax", "ae56a83684ac", "19060bf8ac6c"),
        ("kompakt", "8e93dd97d1db", "722291c351da"),
    ],
)
def test_decisions_are_those_of_always(policy: str, flat: str, congested: str) -> None:
    cluster = Cluster.of(Shape.grid(2, 2, 8))
    for network, expected in ((FREE, flat), (CONGESTED, congested)):
        outcome = simulate(busy(), cluster, POLICIES[policy], levels, Setting(network=network))
        assert (network is FREE, fingerprint(outcome)) == (network is FREE, expected)
