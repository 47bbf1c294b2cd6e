"""First come, first served: the head of the queue blocks all behind it."""

from kompakt_simulator.policies.policy import Policy

fifo = Policy("fifo", key=lambda waiting: waiting.job.submit)
