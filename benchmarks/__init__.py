"""Measurements on real parts; each prints what it measured."""
