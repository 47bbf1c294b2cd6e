"""Shortest job first by its declared duration; a head that cannot be placed blocks all behind it."""

from kompakt_simulator.policies.policy import Policy
from kompakt_simulator.schedulers.queued import Queued
from kompakt_simulator.setting import Knowledge

sjf = Policy(
    "sjf",
    lambda place, _: Queued(place, key=lambda world, task: world.remaining(task), skips=False),
    needs=Knowledge.DECLARED,
    uses_more=True,
)
