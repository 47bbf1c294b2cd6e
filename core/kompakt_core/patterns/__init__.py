"""Patterns: the shape of a job's communication, and the bandwidth it gets on a set of GPUs."""
