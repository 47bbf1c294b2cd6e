"""Decisions of kompakt: job states, link graphs, patterns, placement. Pure values, no I/O."""
