"""The table of phases: each arrow is taken, each missing arrow is not."""

import pytest

from kompakt_core.job.phases import FINISHED, MOVES, Phase, moved

PAIRS = [(start, end) for start in Phase for end in Phase]


@pytest.mark.parametrize(("start", "end"), PAIRS, ids=lambda p: p or "New")
def test_a_phase_moves_along_the_arrows_only(start: Phase, end: Phase) -> None:
    assert moved(start, end) is (end if end in MOVES[start] else start)


def test_nothing_leaves_a_finished_job() -> None:
    assert all(not MOVES[phase] for phase in FINISHED)


def test_every_phase_but_the_first_can_be_reached_and_every_unfinished_one_left() -> None:
    assert {end for ends in MOVES.values() for end in ends} == set(Phase) - {Phase.NEW}
    assert all(MOVES[phase] for phase in set(Phase) - FINISHED)
    assert set(MOVES) == set(Phase)


@pytest.mark.parametrize("start", [Phase.RUNNING, Phase.STARTING])
def test_a_job_that_had_its_places_never_reads_pending_again_in_that_attempt(start: Phase) -> None:
    assert moved(start, Phase.PENDING) is start
