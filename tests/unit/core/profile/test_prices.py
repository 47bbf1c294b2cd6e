"""Price tables that are right or wrong."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kompakt_core.errors import InvalidInput
from kompakt_core.profile.prices import Price, parse_prices

PRICES = [Price("p3.2x", 1, 3.06), Price("p3.8x", 4, 12.24)]
CSV = "# on demand\nmachine, gpus, price_per_hour\np3.2x,1,3.06\n\np3.8x,4,12.24\n"
YAML = "- {machine: p3.2x, gpus: 1, price_per_hour: 3.06}\n- {machine: p3.8x, gpus: 4, price_per_hour: 12.24}\n"


@pytest.mark.parametrize("text", [CSV, YAML, "\ufeff" + CSV.removeprefix("# on demand\n")])
def test_a_table_in_both_forms(text: str) -> None:
    assert parse_prices(text, "prices") == PRICES


def test_a_line_may_be_of_several_machines_and_says_nothing_of_them_where_it_is_one() -> None:
    found = [Price("p3.8x", 4, 12.24), Price("p3.8x", 4, 20.0, 2), Price("p3.8x", 8, 24.48, 2)]
    head = "machine,gpus,price_per_hour,machines\n"
    assert parse_prices(f"{head}p3.8x,4,12.24,1\np3.8x,4,20,2\np3.8x,8,24.48,2\n", "prices") == found
    entry = "- {machine: p3.8x, gpus: 4, price_per_hour: 20, machines: 2}\n"
    assert parse_prices(YAML + entry, "prices")[2] == found[1]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("machine,gpus,price_per_hour\np3,1,\n", "price_per_hour is ''; expected a number from 0 to 1e\\+09"),
        ("machine,gpus,price_per_hour\np3,1,inf\n", "price_per_hour is 'inf'; expected a number from 0 to 1e\\+09"),
        ("machine,gpus,price_per_hour,machines\np3,8,2\n", "line 2: 3 fields; expected machine, gpus, price_per_hour, machines"),
        ("machine,gpus,price_per_hour,machines\np3,8,2,3\n", "'3' machines for 8 GPUs; expected a number that divides the GPUs"),
        ("machine,gpus,price_per_hour,machines\np3,8,2,0\n", "'0' machines for 8 GPUs"),
        ("machine,gpus,price_per_hour,machines\np3,3,2,1.5\n", "'1.5' machines for 3 GPUs"),
        ("machine,gpus,price_per_hour,machines\np3,8,2,\n", "'' machines for 8 GPUs"),
        ("machine,gpus,price_per_hour,machines\np3,8,2,2\np3,8,3,2\n", "line 3: p3 with 8 GPUs on 2 machines stands above"),
        ("machine,gpus,price_per_hour\np3,1\n", "prices, line 2: 2 fields; expected machine, gpus, price_per_hour"),
        ("machine,gpus,price_per_hour\np3,half,1\n", "prices, line 2: gpus is 'half'; expected a whole number from 1 to 1048576"),
        ("machine,gpus,price_per_hour\np3,1.5,1\n", "gpus is '1.5'"),
        ("machine,gpus,price_per_hour\np3,1,-2\n", "price_per_hour is '-2'; expected a number from 0 to 1e\\+09"),
        ("machine,gpus,price_per_hour\np3,1,nan\n", "price_per_hour is 'nan'"),
        ("machine,gpus,price_per_hour\n,1,2\n", "machine is ''; expected a name"),
        ("machine,gpus,price_per_hour\np3,1,2\np3,1,3\n", "line 3: p3 with 1 GPUs stands above already"),
        ("machine,gpus,price_per_hour\n", "no prices; expected lines of"),
        ('machine,gpus,price_per_hour\n"p3,1,2\n', "line 2: .*; expected machine, gpus, price_per_hour"),
        ("machine,cost\np3,2\n", "got 'machine,cost p3,2'; expected CSV with the columns"),
        ("p3: 2\n", "got dict; expected CSV with the columns"),
        ("- {machine: p3, gpus: 1}\n", "entry 1: got .*; expected machine, gpus, price_per_hour, and perhaps machines"),
        ("- {machine: p3, gpus: true, price_per_hour: 1}\n", "entry 1: gpus is True"),
        ("- [\n", "prices: .*; expected CSV with the columns"),
        ("", "no prices; expected lines of"),
        ("# " + "x" * (1 << 20), "more than 1 MiB"),
    ],
)
def test_what_is_wrong_is_named(text: str, sentence: str) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        parse_prices(text, "prices")


@given(st.text(alphabet=st.sampled_from(list("machine,gpus_rcho\n-{}:[]1.5'\"#&*!|% ")), max_size=60))
def test_any_text_gives_prices_or_a_sentence(text: str) -> None:
    for head in ("", "machine,gpus,price_per_hour\n", "machine,gpus,price_per_hour,machines\n", "- "):
        with contextlib.suppress(InvalidInput):
            assert parse_prices(head + text, "prices")
