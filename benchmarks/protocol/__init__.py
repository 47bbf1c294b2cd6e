"""The protocol against tuning: on which columns a scheduling policy is judged, and by which bars; see benchmarks/policies.py."""
