"""The job log of the Philly traces, by the layout that its README states. The file itself (1 GB) is not here."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from kompakt_core.errors import InvalidInput
from kompakt_simulator.jobs import Milliseconds, Trace, TraceJob
from kompakt_simulator.traces.reading import load_trace, parse_trace
from tests.support.simulator.command import APP
from tests.support.simulator.reading import words_or_trace


def attempt(start: str | None, end: str | None, *gpus: int) -> dict[str, Any]:
    detail = [{"ip": f"m{at}", "gpus": [f"gpu{index}" for index in range(number)]} for at, number in enumerate(gpus)]
    return {"start_time": start, "end_time": end, "detail": detail}


def entry(submitted: str | None, *attempts: dict[str, Any]) -> dict[str, Any]:
    return {"status": "Pass", "vc": "a", "jobid": "application_1", "attempts": list(attempts), "submitted_time": submitted}


TWICE = entry(
    "2017-10-07 01:11:39",
    attempt("2017-10-07 01:12:09", "2017-10-07 01:13:23", 8),
    attempt("2017-10-07 01:13:30", "2017-10-07 02:13:30", 8, 4),
)
EARLIER = entry("2017-10-07 00:11:39", attempt("2017-10-07 01:00:00", "2017-10-07 01:00:01", 1), attempt(None, None, 1))
STILL_RUNNING = entry("2017-10-07 00:00:00", attempt("2017-10-07 01:00:00", None, 2))
NEVER_RAN = entry("2017-10-07 00:00:00")


def parse(*entries: object) -> Trace:
    return parse_trace(json.dumps(entries).encode(), "log.json")


def test_work_is_the_time_of_all_attempts_and_gpus_are_those_of_the_last() -> None:
    trace = parse(TWICE, EARLIER, STILL_RUNNING, NEVER_RAN)
    assert trace.jobs == (
        TraceJob(1, Milliseconds(0), Milliseconds(1000), 1),
        TraceJob(0, Milliseconds(3_600_000), Milliseconds((74 + 3600) * 1000), 12),
    )
    assert trace.left_out == 2


def test_the_command_reads_it_and_says_what_it_left_out(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(gzip.compress(json.dumps([TWICE, NEVER_RAN]).encode()))
    flags = ["--trace", str(tmp_path / "log"), "--format", "philly", "--cluster", "1x2x8", "--policy", "fifo"]
    shown = CliRunner().invoke(APP, flags, env={"COLUMNS": "160"})
    assert shown.exit_code == 0, shown.output
    assert "left out: 1 jobs of which" in shown.stderr
    assert "the trace gives a job's work as start_time to end_time of its attempts, in seconds" in " ".join(shown.stdout.split())
    with pytest.raises(InvalidInput, match="unknown header"):
        load_trace(str(tmp_path / "log"), "muri")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[{", "line 1 column 3 .*; expected a JSON list of jobs"),
        ("[]", "no job that ran"),
        ("[3]", "entry 1: got 3; expected an object with submitted_time and a list of attempts"),
        (json.dumps([NEVER_RAN, {"attempts": 1}]), "entry 2: got {'attempts': 1}"),
        (
            json.dumps([entry("2017-10-07", attempt("2017-10-07 01:00:00", "2017-10-07 01:00:09", 1))]),
            "submitted_time: got '2017-",
        ),
        (
            json.dumps([entry(None, attempt("2017-10-07 01:00:00", "2017-10-07 01:00:09", 1))]),
            "submitted None, ran 9 s on 1 GPUs",
        ),
        (json.dumps([entry("2017-10-07 01:00:00", attempt("2017-10-07 01:00:09", "2017-10-07 01:00:00", 1))]), "ran -9 s"),
        (
            json.dumps([entry("2017-10-07 01:00:00", attempt("2017-10-07 01:00:00", "2017-10-07 01:00:09"))]),
            "on 0 GPUs; expected",
        ),
        (
            json.dumps([entry("2017-10-07 01:00:00", attempt("soon", "2017-10-07 01:00:09", 1))]),
            "start_time: got 'soon'; expected a date",
        ),
        (json.dumps([{**TWICE, "attempts": [1]}]), "entry 1 .'application_1'.: got .1.; expected a list of attempts"),
    ],
)
def test_a_broken_log_is_refused_with_the_place(text: str, words: str) -> None:
    with pytest.raises(InvalidInput, match=f"^log.json.*{words}"):
        parse_trace(text.encode(), "log.json")


VALUES = st.recursive(
    st.none() | st.integers() | st.sampled_from(["None", "2017-10-07 01:00:00", "2017-10-07 01:00:09", "x", ""]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["attempts", "submitted_time", "start_time", "end_time", "detail", "gpus"]), inner)
    ),
    max_leaves=20,
)


@settings(deadline=None)
@given(st.lists(VALUES, max_size=3).map(json.dumps) | st.text(max_size=30).map("[".__add__))
def test_any_list_is_a_trace_or_refused_with_the_name_of_its_file(text: str) -> None:
    answer = words_or_trace(text.encode("utf-8", "replace"))
    if isinstance(answer, Trace):
        assert all(job.gpus >= 1 and job.duration > 0 for job in answer.jobs)
    else:
        assert answer.startswith("jobs.csv")
