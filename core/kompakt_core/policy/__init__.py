"""When a gang takes a place that is worse than the best it could have, and when it goes on waiting.

Everything here is a function of values: the cluster's planner and the simulator call the same ones with their own clocks.
"""
