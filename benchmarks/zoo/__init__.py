"""Models of others under compression: what they keep, hold, take and lose; `python -m benchmarks.zoo`."""
