"""`kompakt profile --prices`: the cheapest place in time, what it rests on, its arithmetic, and what cannot be asked."""

import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from kompakt_cli import profile_document
from kompakt_cli.main import application
from kompakt_cli.profile_offers import how_to_measure, rounded_up
from kompakt_core.profile.document import Profile, ProfiledRun
from kompakt_core.profile.measurements import Hardware

RUN = ProfiledRun(0.2, (0.2, 0.2), 0.0, 2, 531_400_000, 2)
PRICES = "machine,gpus,price_per_hour,machines\nbox,1,1,1\nbox,4,4,1\nbox,8,9,1\nbox,16,18,2\nhuge,8,30,1\n"
PROFILE = Profile(
    "box",
    8,
    "GPU",
    5,
    20,
    {
        "one": replace(RUN, ranks=1),
        "all": replace(RUN, step_seconds=0.3, parts=(0.28, 0.32)),
        "halves": replace(RUN, step_seconds=0.5, parts=(0.48, 0.52)),
    },
)


def kompakt(*words: str) -> str:
    """The command's end: an error as it was raised, else what was printed."""
    done = CliRunner().invoke(application(), ["profile", *words])
    return str(done.exception) if done.exception is not None and not done.stdout else done.output


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    """A profile, a price table and 36,000 batches: 9,000 steps on 4 GPUs."""
    monkeypatch.setenv("COLUMNS", "160")
    (tmp_path / "box.json").write_text(json.dumps(profile_document.to_json(PROFILE, 8)))
    (tmp_path / "prices.csv").write_text(PRICES)
    return "--read", str(tmp_path / "box.json"), "--prices", str(tmp_path / "prices.csv"), "--batches", "36000"


def line(shown: str, start: str) -> str:
    return " ".join(next(one for one in shown.splitlines() if re.match(start, one)).split())


def test_every_line_says_what_it_rests_on(asked: tuple[str, ...]) -> None:
    shown = kompakt(*asked, "--budget-hours", "0.8")
    assert line(shown, r"box +1 ") == "box 1 1 2.00 2.00 no measured, data from memory"
    assert line(shown, r"box +4 ") == "box 4 4 0.50..0.80 2.00..3.20 yes predicted from 1 GPU and 8 GPUs, data from memory"
    assert line(shown, r"box +8 ") == "box 8 9 0.38 3.38 yes measured, data from memory"
    assert line(shown, r"box +2 x 8 ").endswith(" yes predicted from 2 x 4 GPUs and 8 GPUs, data from memory")
    assert line(shown, "huge") == "huge 8 30 - - - no profile of this machine"


def test_no_figure_is_cut_on_a_narrow_screen(asked: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    shown = kompakt(*asked, "--budget-hours", "0.8")
    assert re.search(r"0\.50\.\.0\.80 +2\.00\.\.3\.20", shown)
    assert "…" not in shown


def test_a_recommendation_that_rests_on_a_prediction_says_so_and_how_to_be_sure(asked: tuple[str, ...]) -> None:
    shown = kompakt(*asked, "--budget-hours", "0.8")
    assert "cheapest in time: 4 GPUs of box, at most 0.80 h, 3.20 (predicted from 1 GPU and 8 GPUs, data from memory)" in shown
    assert "to be sure: kompakt profile --machine box --devices 4 -o json -- python train.py > box-4.json" in shown
    safe = kompakt(*asked, "--budget-hours", "0.6")
    assert "cheapest in time: 8 GPUs of box, 0.38 h, 3.38 (measured, data from memory)" in safe
    assert "to be sure" not in safe
    assert "perhaps better: 4 GPUs of box, 0.50..0.80 h, 2.00..3.20; to know: kompakt profile --machine box --devices 4" in safe


def test_without_a_budget_any_time_will_do(asked: tuple[str, ...]) -> None:
    assert "cheapest in time: 1 GPU of box, 2.00 h, 2.00 (measured, data from memory)" in kompakt(*asked)


def test_where_nothing_is_in_time_the_smallest_budget_is_told_and_works(asked: tuple[str, ...]) -> None:
    shown = kompakt(*asked, "--budget-hours", "0.1")
    assert "nothing is sure to be in time; the fastest is 8 GPUs of box: 0.38 h, 3.38" in shown
    budget = re.findall(r"--budget-hours ([\d.]+)", shown)
    assert budget == ["0.38"]
    assert "cheapest in time: 8 GPUs of box" in kompakt(*asked, "--budget-hours", *budget)


def test_a_budget_is_rounded_up() -> None:
    assert (rounded_up(0.375), rounded_up(0.371), rounded_up(2.0)) == ("0.38", "0.38", "2.00")


def test_a_line_without_a_profile_names_the_command(asked: tuple[str, ...]) -> None:
    told = "on it: kompakt profile --machine huge --devices 8 -o json -- python train.py > huge-8.json"
    assert told in kompakt(*asked)
    several = how_to_measure(Hardware("a b", 8, 2))
    assert several == (
        "kompakt profile --machine 'a b' --nodes 2 --node-rank RANK --master HOST:PORT --devices 4 -o json -- python train.py "
        "> a-b-2-4.json"
    )


def test_a_name_is_shown_as_it_was_written(asked: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "prices.csv").write_text("machine,gpus,price_per_hour\nbox[red],4,2\n[/a],4,2\n")
    shown = kompakt(*asked)
    assert "nothing is known of 4 GPUs of [/a] (no profile of this machine)" in shown
    assert "--machine 'box[red]' --devices 4" in shown


NUMBER = r"-?[\d.]+(?:e-?\d+)?"


def test_the_arithmetic_adds_up_to_the_table(asked: tuple[str, ...]) -> None:
    """Every sum and product is computed again from the printed numbers."""
    shown = kompakt(*asked, "--budget-hours", "0.8", "--explain")
    steps = dict(re.findall(r"steps = 36000 batches / (\d+) devices = (\d+)", shown))
    assert steps == {"1": "36000", "4": "9000", "8": "4500", "16": "2250"}
    sums = re.findall(rf"step = (.*) = ({NUMBER}) s$", shown, re.MULTILINE)
    assert len(sums) == 2 + 2 * 2, "two measured lines, and both ends of two predicted ones"
    for parts, total in sums:
        assert sum(map(float, re.findall(rf"({NUMBER}) s \(", parts))) == pytest.approx(float(total), rel=1e-5)
    for count, step, hours in re.findall(rf"hours = (\d+) steps x ({NUMBER}) s / 3600 = ({NUMBER})$", shown, re.MULTILINE):
        assert int(count) * float(step) / 3600 == pytest.approx(float(hours), abs=6e-5)
    costs = re.findall(rf"cost = ({NUMBER}) h x ({NUMBER}) per hour = ({NUMBER})$", shown, re.MULTILINE)
    for hours, price, cost in costs:
        assert float(hours) * float(price) == pytest.approx(float(cost), abs=0.0051 + 6e-5 * float(price))
    assert [cost for _, price, cost in costs if price == "4"] == ["2.00", "3.20"], "as in the table"
    assert "0.2 s (run one) + 0.1 s (interconnect) = 0.3 s" in shown
    assert "36001 batches / 16 devices = 2251, rounded up\n" in kompakt(*asked, "--batches", "36001", "--explain")


def test_programs_get_both_ends_and_the_recommendation(asked: tuple[str, ...]) -> None:
    told: dict[str, Any] = json.loads(kompakt(*asked, "--budget-hours", "0.6", "-o", "json"))
    offers = {(one["machine"], one["gpus"]): one for one in told["offers"]}
    assert told["recommended"] == offers["box", 8]
    assert (told["budgetHours"], told["smallestBudgetHours"]) == (0.6, pytest.approx(0.375))
    four = offers["box", 4]
    assert (four["least_hours"], four["hours"], four["in_time"], four["chance"]) == (0.5, pytest.approx(0.8), False, "perhaps")
    assert (offers["huge", 8]["hours"], offers["huge", 8]["measure"][:15]) == (None, "kompakt profile")
    assert offers["box", 8]["measure"] == ""


def test_without_a_table_programs_get_the_profile_as_jobs_do(asked: tuple[str, ...]) -> None:
    assert json.loads(kompakt(*asked[:2], "-o", "json")) == json.loads(Path(asked[1]).read_text())


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--budget-hours", "0"), "--budget-hours 0: expected hours above 0, such as 8; leave it out for no limit"),
        (("--budget-hours", "-1"), "--budget-hours -1: expected hours above 0"),
        (("--budget-hours", "nan"), "--budget-hours nan: expected hours above 0"),
        (("--budget-hours", "inf"), "--budget-hours inf: expected hours above 0"),
        (("--batches", "0"), "--prices needs --batches: how many batches of one device the whole training takes"),
        (("--batches", "-5"), "--batches -5: expected a number from 1 to"),
        (("--batches", str(1 << 60)), "expected a number from 1 to"),
        (("--prices", "", "--budget-hours", "8", "--batches", "0"), "--budget-hours needs --prices FILE"),
        (("--prices", ""), "--batches needs --prices FILE: a table with machine, gpus, price_per_hour"),
        (("--prices", "", "--batches", "0", "--explain"), "--explain needs --prices FILE"),
    ],
)
def test_what_cannot_be_asked_is_told_in_a_sentence(asked: tuple[str, ...], words: tuple[str, ...], sentence: str) -> None:
    told = kompakt(*asked, *words)
    assert sentence in told
    assert "\n" not in told.strip()


def test_real_data_make_a_measurement_and_those_of_several_machines_cannot_be_profiled(
    asked: tuple[str, ...], tmp_path: Path
) -> None:
    real = replace(PROFILE, runs={**PROFILE.runs, "warm": replace(RUN, step_seconds=0.4, parts=(0.38, 0.42))})
    (tmp_path / "box.json").write_text(json.dumps(profile_document.to_json(real, 8)))
    assert line(kompakt(*asked), r"box +8 ").endswith(" yes measured")
    (tmp_path / "prices.csv").write_text("machine,gpus,price_per_hour,machines\nbox,8,9,2\n")
    shown = kompakt(*asked)
    assert "cheapest in time: 2 x 4 GPUs of box, at most" in shown
    assert "data from memory" not in shown.partition("to be sure")[0].partition("MACHINE")[2], "the prep stall is in the most"
    assert "to be sure: let the training run there for a while" in shown


def test_two_profiles_of_one_machine_are_refused(asked: tuple[str, ...], tmp_path: Path) -> None:
    again = replace(PROFILE, runs={"all": RUN})
    (tmp_path / "again.json").write_text(json.dumps(profile_document.to_json(again, 8)))
    told = kompakt(*asked, "--read", str(tmp_path / "again.json"))
    assert told == "two profiles of box with 8 GPUs differ; expected one, or two names by --machine"


def test_a_training_profiled_now_counts_in_place_of_its_earlier_profile(
    asked: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = replace(PROFILE, runs={"all": replace(RUN, step_seconds=0.6, parts=())})
    monkeypatch.setattr("kompakt_cli.profile._measured", lambda *_: now)
    shown = kompakt(*asked, "--", sys.executable, __file__)
    assert line(shown, r"box +8 ") == "box 8 9 0.75 6.75 yes measured, data from memory"


def test_a_table_of_other_machines_has_nothing_to_recommend(asked: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "prices.csv").write_text("machine,gpus,price_per_hour\nhuge,8,30\n")
    assert "nothing measured is in the price table, so nothing can be recommended" in kompakt(*asked, "--budget-hours", "1")
