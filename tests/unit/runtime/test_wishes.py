"""Bounds that sources should keep for the sake of what is computed from them."""

import math

import pytest

from kompakt_runtime.hooks.wishes import AGE, Wishes


class Asker:
    def __init__(self, name: str, bound: float | None) -> None:
        self.name, self.bound = name, bound


GELU, NORM = (Asker("1 [gelu]", 0.5), "self"), (Asker("0 [norm]", 0.5), "input")


def test_nobody_wishes_anything_at_first():
    assert Wishes().bound([GELU], 0) == math.inf


def test_a_wish_follows_the_bounds_that_its_readers_have_by_now():
    wishes, layer, other = Wishes(), Asker("2", 0.2), Asker("3", 0.1)
    wishes.wish(GELU, [(layer, "mat1"), (other, "mat1")], 0.8, step=4)
    assert wishes.bound([NORM, GELU], 5) == pytest.approx(0.08)
    other.bound = None
    assert wishes.bound([GELU], 5) == pytest.approx(0.16)
    del layer, other
    assert wishes.bound([GELU], 5) == math.inf


def test_wishes_reach_through_what_is_itself_computed_again():
    wishes, layer = Wishes(), Asker("2", 0.1)
    wishes.wish(GELU, [(layer, "mat1")], 0.5, step=0)
    wishes.wish(NORM, [GELU], 0.5, step=0)
    assert wishes.bound([NORM], 0) == pytest.approx(0.025)


def test_the_tightest_of_several_results_counts_and_one_may_be_left_out():
    wishes, one, two = Wishes(), Asker("2", 0.1), Asker("3", 0.4)
    wishes.wish(GELU, [(one, "mat1")], 1.0, step=0)
    wishes.wish(GELU, [(two, "mat1")], 1.0, step=0)
    assert wishes.bound([GELU], 0) == 0.1
    assert wishes.bound([GELU], 0, without=(one, "mat1")) == 0.4
    wishes.forget(GELU, (one, "mat1"))
    assert wishes.bound([GELU], 0) == 0.4


def test_a_wish_that_is_not_repeated_ends():
    wishes, layer = Wishes(), Asker("2", 0.1)
    wishes.wish(GELU, [(layer, "mat1")], 1.0, step=3)
    assert wishes.bound([GELU], 3 + AGE) == 0.1
    assert wishes.bound([GELU], 4 + AGE) == math.inf
