"""The bounds of MAPA's experiment, against trying every way."""

import random
from collections.abc import Sequence

import pytest

from benchmarks.mapa_bounds import Lookahead, Start, foresight, sets_of

ALL = 0b11111


def drawn(seed: int, count: int) -> tuple[list[Start], list[float]]:
    """So many starts on five GPUs, the longest-running ending when there is no room, and a share for every set."""
    rng = random.Random(seed)
    starts: list[Start] = []
    running: list[tuple[int, int]] = []
    for number in range(count):
        size, ended = rng.randint(2, 4), set()
        while sum(gpus for _, gpus in running) + size > ALL.bit_count():
            ended.add(running.pop(0)[0])
        running.append((number, size))
        starts.append(Start(size, rng.random() < 0.7, frozenset(ended)))
    return starts, [rng.random() for _ in range(ALL + 1)]


def every_way(starts: Sequence[Start], shares: Sequence[float], held: dict[int, int], number: int = 0) -> float:
    if number == len(starts):
        return 0.0
    start = starts[number]
    held = {job: mask for job, mask in held.items() if job not in start.ended}
    return max(
        start.counts * shares[mask] + every_way(starts, shares, {**held, number: mask}, number + 1)
        for mask in sets_of(ALL & ~sum(held.values()), start.gpus)
    )


@pytest.mark.parametrize("seed", range(8))
def test_foresight_is_the_best_of_all_ways(seed: int) -> None:
    starts, shares = drawn(seed, 6)
    assert foresight(ALL, starts, shares) == pytest.approx(every_way(starts, shares, {}))


def test_lookahead_gives_up_a_little_now_for_more_later() -> None:
    # Only {0,1} leaves {2,3}, which is worth as much; {0,2} is worth a little more and leaves nothing.
    shares = [0.0] * 32
    shares[0b00011] = shares[0b01100] = 0.95
    shares[0b00101] = 1.0
    assert Lookahead(ALL, shares).choose([], 2, True) in (0b00011, 0b01100)


def test_lookahead_keeps_insensitive_jobs_off_what_counts() -> None:
    shares = [0.0] * 32
    shares[0b00011] = 1.0
    assert not Lookahead(ALL, shares).choose([], 2, False) & 0b00011
