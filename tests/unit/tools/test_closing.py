"""The demo's closing tables say what they were given."""

import io

import pytest
from rich.console import Console

from tools.kube import closing, following
from tools.kube.closing import DemoRun
from tools.kube.comparison import Comparison

FIGURES = {
    "active": True,
    "plainBytes": 510_000_000,
    "savedBytes": 76_000_000,
    "ratio": "6.71",
    "denominator": "what plain autograd keeps",
    "steps": 280,
    "ranks": 4,
    "target": "0.01",
}


def run(name, accuracy, compression=None):
    status = {"phase": "Succeeded", **({"compression": compression} if compression else {})}
    return DemoRun({"metadata": {"name": name}, "status": status}, accuracy)


def text(table):
    console = Console(width=140, record=True, file=io.StringIO())
    console.print(table)
    return " ".join(console.export_text().split())


def test_a_place_is_shown_in_gigabytes_beside_what_chance_gives():
    shown = text(closing.places_table([Comparison("node-1", (5, 6), 50_000, 6_000, 20_666.7, 6_000, 50_000, 50_000)]))
    assert "node-1 │ 5,6 │ 50.0 │ 20.7 │ 6.0 │ 6.0 │ 50.0 │ 50.0" in shown
    assert "weakest worker's: 50.0 GB/s" in shown


def test_both_runs_stand_side_by_side_with_the_denominator():
    shown = text(closing.runs_table(run("digits", 97.41, FIGURES), run("digits-plain", 97.59)))
    assert "digits │ Succeeded │ 76 MB │ 6.71x │ 97.41 %" in shown
    assert "digits-plain │ Succeeded │ as plain autograd │ 1 │ 97.59 %" in shown
    assert "plain autograd keeps 510 MB" in shown
    assert "what plain autograd keeps" in shown


def test_the_last_accuracy_of_a_log_counts():
    assert following.accuracy("epoch 1  test accuracy 50.00 %\ntest accuracy 97.41 %\n") == 97.41


def test_a_log_without_accuracy_is_an_error():
    with pytest.raises(following.JobFailed, match="no accuracy"):
        following.accuracy("Traceback ...")
