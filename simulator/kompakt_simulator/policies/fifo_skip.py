"""First come, first served, but what does not fit now is passed over and may starve."""

from kompakt_simulator.policies.policy import Policy

fifo_skip = Policy("fifo-skip", key=lambda waiting: waiting.job.submit, skips=True)
