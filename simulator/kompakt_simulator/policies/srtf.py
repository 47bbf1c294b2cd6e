"""Shortest remaining time first by known durations, preemptive and free of cost: a bound rather than something to run."""

from kompakt_simulator.policies.policy import Policy

srtf = Policy("srtf", key=lambda waiting: waiting.remaining, skips=True, preempts=True)
