"""First come, first served, but who cannot be placed is passed over and nothing is reserved."""

from kompakt_simulator.policies.policy import Policy
from kompakt_simulator.schedulers.queued import Queued

fifo_skip = Policy("fifo-skip", lambda place, _: Queued(place, key=lambda _, task: task.job.submit, skips=True))
