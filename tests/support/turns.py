"""Long tests that take turns under `make test`: each runs at about every second commit. Under pytest alone all of them run."""

import os

import pytest

TURNS = ("0", "1")
TURN = os.environ.get("KOMPAKT_TURN", "all")  # tools/levels.py says whose it is


def in_turn(number: int) -> pytest.MarkDecorator:
    """For a test or a file of tests that takes a minute or more and whose subject seldom changes. number: 0 or 1, so that both
    halves take about as long.
    """
    reason = f"takes long, and it is not its turn: KOMPAKT_TURN={number} runs it, or all"
    return pytest.mark.skipif(TURN not in ("all", TURNS[number]), reason=reason)
