"""Shortest remaining time first, preemptive and free of cost: a bound rather than something to run."""

from kompakt_simulator.policies.policy import Policy
from kompakt_simulator.schedulers.shortest import Shortest
from kompakt_simulator.setting import Knowledge

srtf = Policy("srtf", lambda place, _: Shortest(place), needs=Knowledge.DECLARED, uses_more=True, free_of_cost=True)
