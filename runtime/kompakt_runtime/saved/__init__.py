"""Saved storages: the states each may be in, and what is kept of it for the backward pass."""
