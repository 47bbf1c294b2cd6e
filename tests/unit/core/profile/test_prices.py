"""The cheapest place inside a time budget, and price tables that are right or wrong."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kompakt_core.errors import InvalidInput
from kompakt_core.profile.prices import Measured, Price, cheapest, offers, parse_prices
from tests.support.core.outcomes import refusal

# The published prices of three machines (Stash); the step times are made up.
PRICES = [Price("p3.2x", 1, 3.06), Price("p3.8x", 4, 12.24), Price("p3.16x", 8, 24.48)]
STEPS = [Measured("p3.2x", 1, 0.36), Measured("p3.8x", 4, 0.72), Measured("p3.16x", 8, 0.45)]
BATCHES = 80_000


def test_without_a_budget_the_smallest_cost_wins_and_dearer_is_not_faster_by_itself() -> None:
    found = offers(PRICES, STEPS, BATCHES)
    assert [(one.price.machine, one.hours, one.cost) for one in found] == [
        ("p3.2x", pytest.approx(8), pytest.approx(24.48)),
        ("p3.16x", pytest.approx(1.25), pytest.approx(30.6)),
        ("p3.8x", pytest.approx(4), pytest.approx(48.96)),
    ]
    assert cheapest(found) is found[0]


def test_a_budget_rules_out_what_is_late_and_equal_is_in_time() -> None:
    first = cheapest(offers(PRICES, STEPS, BATCHES, 7.9))
    assert first is not None
    assert first.price.machine == "p3.16x"
    exact = offers(PRICES, STEPS, BATCHES, 8.0)
    assert [one.in_time for one in exact] == [True, True, True]
    late = offers(PRICES, STEPS, BATCHES, 1.0)
    assert cheapest(late) is None
    assert late[0].price.machine == "p3.16x", "the fastest of those that are late"


def test_what_nobody_measured_stands_last_without_a_time() -> None:
    found = offers([Price("new", 8, 0.01), *PRICES], STEPS, BATCHES)
    assert (found[-1].price.machine, found[-1].hours, found[-1].cost, found[-1].in_time) == ("new", None, None, False)
    assert cheapest(offers([Price("new", 8, 0.01)], STEPS, BATCHES)) is None


@given(st.permutations(PRICES), st.permutations(STEPS), st.floats(0.5, 10))
def test_the_order_of_lines_does_not_matter(prices: list[Price], steps: list[Measured], hours: float) -> None:
    assert offers(prices, steps, BATCHES, hours) == offers(PRICES, STEPS, BATCHES, hours)


def test_numbers_that_cannot_be_are_refused() -> None:
    for batches, hours in ((0, 1.0), (1, 0.0), (1, float("nan"))):
        assert "expected both above 0" in refusal(offers, PRICES, STEPS, batches, hours)
    assert "p3.2x: a step of 0" in refusal(offers, PRICES, [Measured("p3.2x", 1, 0.0)], 1)


CSV = "# on demand\nmachine, gpus, price_per_hour\np3.2x,1,3.06\n\np3.8x,4,12.24\n"
YAML = "- {machine: p3.2x, gpus: 1, price_per_hour: 3.06}\n- {machine: p3.8x, gpus: 4, price_per_hour: 12.24}\n"


@pytest.mark.parametrize("text", [CSV, YAML])
def test_a_table_in_both_forms(text: str) -> None:
    assert parse_prices(text, "prices") == PRICES[:2]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("machine,gpus,price_per_hour\np3,1\n", "prices, line 2: 2 fields; expected machine, gpus, price_per_hour"),
        ("machine,gpus,price_per_hour\np3,half,1\n", "prices, line 2: gpus is 'half'; expected a whole number from 1"),
        ("machine,gpus,price_per_hour\np3,1.5,1\n", "gpus is '1.5'"),
        ("machine,gpus,price_per_hour\np3,1,-2\n", "price_per_hour is '-2'; expected a number from 0 up"),
        ("machine,gpus,price_per_hour\np3,1,nan\n", "price_per_hour is 'nan'"),
        ("machine,gpus,price_per_hour\n,1,2\n", "machine is ''; expected a name"),
        ("machine,gpus,price_per_hour\np3,1,2\np3,1,3\n", "line 3: p3 with 1 GPUs stands above already"),
        ("machine,gpus,price_per_hour\n", "no prices; expected lines of"),
        ('machine,gpus,price_per_hour\n"p3,1,2\n', "line 2: .*; expected machine, gpus, price_per_hour"),
        ("machine,cost\np3,2\n", "got str; expected CSV with the columns"),
        ("p3: 2\n", "got dict; expected CSV with the columns"),
        ("- {machine: p3, gpus: 1}\n", "entry 1: got .*; expected exactly machine, gpus, price_per_hour"),
        ("- {machine: p3, gpus: true, price_per_hour: 1}\n", "entry 1: gpus is True"),
        ("- [\n", "prices: .*; expected CSV with the columns"),
        ("", "got NoneType"),
        ("# " + "x" * (1 << 20), "more than 1 MiB"),
    ],
)
def test_what_is_wrong_is_named(text: str, sentence: str) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        parse_prices(text, "prices")


@given(st.text(alphabet=st.sampled_from(list("machine,gpus_rcho\n-{}:[]1.5'\"#&*!|% ")), max_size=60))
def test_any_text_gives_prices_or_a_sentence(text: str) -> None:
    for head in ("", "machine,gpus,price_per_hour\n", "- "):
        with contextlib.suppress(InvalidInput):
            assert parse_prices(head + text, "prices")
