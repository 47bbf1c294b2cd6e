"""First come, first served: a head that cannot be placed blocks all behind it."""

from kompakt_simulator.policies.policy import Policy
from kompakt_simulator.schedulers.queued import Queued

fifo = Policy("fifo", lambda place, _: Queued(place, key=lambda _, task: task.job.submit, skips=False))
