"""Traces of jobs: those that come with the simulator, and files in the formats of others."""
