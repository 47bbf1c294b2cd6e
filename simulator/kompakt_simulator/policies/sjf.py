"""Shortest job first by its known duration; a head that cannot be placed blocks all behind it."""

from kompakt_simulator.policies.policy import Policy

sjf = Policy("sjf", key=lambda waiting: waiting.job.duration)
