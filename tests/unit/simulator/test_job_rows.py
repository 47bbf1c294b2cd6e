"""Per-job rows of `kompakt simulate`: every job once per policy, in figures that add up to the summary's."""

import csv
import io
import json
from statistics import fmean
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from kompakt_core.errors import InvalidInput
from kompakt_simulator.command import simulate

APP = typer.Typer()
APP.command()(simulate)
# Four machines in two racks, less than the trace asks for at times: jobs wait, are stopped, and one in eight is refused.
BUSY = ("--cluster", "2x1x4", "--lease", "60", "--restart-s", "5", "--policy", "las,fifo")
NETWORK = '{"levels": {"machine": 0.05, "rack": 1, "cluster": 4}, "unnamed": [0.3], "models": {"vgg19": 0.6, "vgg16": 0.6}}'
JOBS = (
    *("job_id,submit_s,gpus,duration_s,model,comm_ratio,priority", "3,0,4,300,vgg19,,0", "1,10,8,200,,0.5,2", "2,20,3,100,,,0"),
    *("9,30,4,400,,,0", "7,0.5,9,10,vgg19,,0"),
)


def call(*arguments: str) -> Result:
    shown = CliRunner().invoke(APP, arguments)
    assert shown.exit_code == 0, shown.output
    return shown


@pytest.fixture
def flags(tmp_path: Any) -> tuple[str, ...]:
    (tmp_path / "jobs.csv").write_text("\n".join(JOBS) + "\n")
    (tmp_path / "net.json").write_text(NETWORK)
    return (*BUSY, "--trace", str(tmp_path / "jobs.csv"), "--network", str(tmp_path / "net.json"))


def test_json_has_an_object_per_job_on_request_and_is_else_what_it_was(flags: tuple[str, ...]) -> None:
    plain = json.loads(call(*flags, "-o", "json").stdout)
    with_jobs = json.loads(call(*flags, "-o", "json", "--jobs").stdout)
    rows = {policy: told.pop("jobs") for policy, told in with_jobs.items()}
    assert with_jobs == plain
    assert {policy: [row["job_id"] for row in each] for policy, each in rows.items()} == {
        policy: [1, 2, 3, 7, 9] for policy in plain
    }


def test_the_rows_add_up_to_the_summary(flags: tuple[str, ...]) -> None:
    for told in json.loads(call(*flags, "-o", "json", "--jobs").stdout).values():
        done = [row for row in told["jobs"] if row["state"] == "Finished"]
        means = {"avg_jct_s": "jct_s", "avg_queue_s": "queue_s", "comm_s_per_job": "comm_s", "restart_s_per_job": "restart_s"}
        for figure, column in means.items():
            assert fmean(row[column] for row in done) == pytest.approx(told[figure]), figure
        assert sum(row["preemptions"] for row in done) == told["preemptions"]
        assert max(row["end_s"] for row in done) == told["makespan_s"]
        assert len(told["jobs"]) - len(done) == told["refused"] == 1
    assert told["comm_s_per_job"] > 0


def test_stopped_jobs_say_how_often_and_where_they_ended(flags: tuple[str, ...]) -> None:
    told = json.loads(call(*flags, "-o", "json", "--jobs").stdout)
    assert told["las"]["preemptions"] > 0
    rows = {row["job_id"]: row for row in told["fifo"]["jobs"]}
    assert (rows[1]["level"], rows[1]["machines"], rows[3]["level"], rows[3]["machines"]) == ("Cluster", 2, "Machine", 1)
    refused = {"job_id": 7, "state": "Refused", "model": "vgg19", "priority": 0, "gpus": 9, "submit_s": 0.5, "duration_s": 10.0}
    assert {key: value for key, value in rows[7].items() if value is not None} == refused


def test_csv_has_the_same_rows_below_one_header(flags: tuple[str, ...]) -> None:
    told = json.loads(call(*flags, "-o", "json", "--jobs").stdout)
    read = list(csv.DictReader(io.StringIO(call(*flags, "-o", "csv").stdout)))
    expected = [
        {"policy": policy, **{key: "" if value is None else str(value) for key, value in row.items()}}
        for policy, each in told.items()
        for row in each["jobs"]
    ]
    assert read == expected


def test_job_rows_are_refused_where_no_output_holds_them() -> None:
    shown = CliRunner().invoke(APP, ("--jobs", "--policy", "fifo"))
    assert isinstance(shown.exception, InvalidInput)
    assert "--jobs with -o table: expected -o json; -o csv prints a row per job as it is" in str(shown.exception)
