"""Thousands of gangs that wait on thousands of nodes, while pods change and gangs end; `python -m benchmarks.backlog`."""
