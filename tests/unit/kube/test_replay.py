"""Which GPUs may have been free when a pod was bound, from revisions of writes and the moments they were seen."""

import pytest

from tests.support.cluster.replay import Moment, Stay, free_masks

INDEX = {"a": 0, "b": 1, "c": 2, "d": 3}
LAG = 3.0


def stay(pod: str, gpus: str, bound: tuple[int, float], free: tuple[int, float] | None = None) -> Stay:
    return Stay(pod, "n", frozenset(gpus), Moment(*bound), None if free is None else Moment(*free))


ME = stay("me", "a", (100, 50.0))


@pytest.mark.parametrize(
    ("other", "masks"),
    [
        (stay("still there", "bc", (90, 40.0)), {0b1001}),
        (stay("long gone", "bc", (10, 10.0), (20, 20.0)), {0b1111}),
        (stay("gone a moment ago", "bc", (10, 10.0), (99, 49.0)), {0b1111, 0b1001}),
        (stay("went afterwards", "bc", (10, 10.0), (101, 50.1)), {0b1001}),
        (stay("bound right afterwards", "bc", (101, 50.5)), {0b1111, 0b1001}),
        (stay("bound much later", "bc", (200, 60.0)), {0b1111}),
    ],
    ids=lambda one: one.pod if isinstance(one, Stay) else "",
)
def test_gpus_that_change_hands_around_a_bind_are_doubtful_and_no_others(other: Stay, masks: set[int]) -> None:
    assert set(free_masks(ME, [other], INDEX, LAG)) == masks


def test_each_doubt_doubles_the_possibilities() -> None:
    others = [stay("x", "b", (10, 10.0), (99, 49.0)), stay("y", "c", (10, 10.0), (98, 48.0)), stay("z", "d", (90, 40.0))]
    assert set(free_masks(ME, others, INDEX, LAG)) == {0b0111, 0b0101, 0b0011, 0b0001}
