"""Activation compression inside training pods; knows no other package of kompakt."""
