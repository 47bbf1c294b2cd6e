"""`kompakt top`: the table, its order, and what it prints for programs."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from kompakt_cli import main
from kompakt_cli.top import duration, left, ordered, progress, size
from tests.support.cli.scripted_api import Script, scripted_api

HERE = "/apis/kompakt.dev/v1alpha1/namespaces/ml/trainingjobs"
EVERYWHERE = "/apis/kompakt.dev/v1alpha1/trainingjobs"
Run = Callable[..., Result]


def job(name: str, gpus: int = 1, created: str = "2026-01-31T12:00:00Z", **status: Any) -> dict[str, Any]:
    meta = {"name": name, "namespace": "ml", "uid": name, "creationTimestamp": created}
    return {"metadata": meta, "spec": {"roles": [{"replicas": 2, "gpusPerReplica": gpus}]}, "status": status}


RUNNING = job(
    "big",
    4,
    phase="Running",
    nodes="node-1",
    progress={"step": 900, "total": 5000},
    compression={"ratio": "5.00", "peakBytes": 41000000, "overheadPercent": "17.2"},
    scheduling={"plan": {"level": "Machine", "value": 25000}},
)
WAITING = job("late", phase="Pending", scheduling={"message": "there is no room", "waitingSince": "2026-01-31T12:05:00Z"})
FIRST = job("early", phase="Pending", scheduling={"message": "there is no room", "waitingSince": "2026-01-31T12:01:00Z"})
OVER = job("done", 8, phase="Succeeded", nodes="node-2")
NEW = job("new")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[Script, Run]]:
    with scripted_api(tmp_path) as (script, path):
        runner = CliRunner(env={"COLUMNS": "200"})
        yield script, lambda *words: runner.invoke(main.application(), ["top", *words, "--kubeconfig", path])


def test_who_has_gpus_comes_first_then_who_waits_longest() -> None:
    small = job("small", phase="Running", nodes="node-1")
    found = ordered([OVER, WAITING, small, NEW, FIRST, RUNNING])
    assert [one["metadata"]["name"] for one in found] == ["big", "small", "new", "early", "late", "done"]


def test_the_table_leaves_out_what_is_over(server: tuple[Script, Run]) -> None:
    script, run = server
    script.answers["GET", HERE] = (200, {"items": [OVER, WAITING, RUNNING]})
    first, second, third = run().output.splitlines()
    assert first.split() == ["NAME", "PHASE", "GPUS", "LEVEL", "PROGRESS", "LEFT", "SAVED", "AGE", "WHY"]
    assert second.split()[:8] == ["big", "Running", "8", "Machine", "900/5000", "(18%)", "-", "5.00x"]
    assert third.endswith("there is no room")
    assert "done" in run("-a").output


def test_wide_shows_bandwidth_nodes_peak_overhead_and_restarts(server: tuple[Script, Run]) -> None:
    script, run = server
    script.answers["GET", HERE] = (200, {"items": [RUNNING]})
    words = run("-o", "wide").output.splitlines()[1].split()
    assert words[7:16] == ["25.0", "node-1", "41", "MB", "-", "5.00x", "17.2", "%", "0"]


def test_pages_are_read_to_the_end_and_names_are_printed(server: tuple[Script, Run]) -> None:
    script, run = server
    script.answers["GET", EVERYWHERE] = [(200, {"items": [RUNNING], "metadata": {"continue": "x"}}), (200, {"items": [NEW]})]
    assert run("-A", "-o", "name").output.splitlines() == ["trainingjob.kompakt.dev/big", "trainingjob.kompakt.dev/new"]
    assert script.queries_of(EVERYWHERE)[1]["continue"] == ["x"]


def test_yaml_and_json_hold_the_objects(server: tuple[Script, Run]) -> None:
    script, run = server
    script.answers["GET", HERE] = (200, {"items": [RUNNING]})
    assert json.loads(run("-o", "json").output)["items"] == [RUNNING]
    assert yaml.safe_load(run("-o", "yaml").output)["items"] == [RUNNING]


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0s"), (59.9, "59s"), (60, "1m"), (310, "5m10s"), (7205, "2h"), (90061, "1d1h"), (86400 * 3 + 61, "3d")],
)
def test_durations_in_two_units_next_to_each_other(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def test_figures_that_are_not_known() -> None:
    assert (progress({}), left({}, 0.0), size(None)) == ("-", "-", "-")
    assert (progress({"step": 7}), left({"eta": "1970-01-01T00:01:00Z"}, 0.0), size(21_000_000_000)) == (
        "step 7",
        "1m",
        "21.0 GB",
    )


def test_a_pipe_gets_whole_lines(server: tuple[Script, Run], tmp_path: Path) -> None:
    script, _ = server
    script.answers["GET", HERE] = (
        200,
        {"items": [job("a-name-that-is-rather-long", phase="Pending", scheduling={"message": "x" * 90})]},
    )
    config = next(tmp_path.glob("*.yaml"))
    command = [sys.executable, "-m", "kompakt_cli", "top", f"--kubeconfig={config}"]
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    printed = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    assert printed.splitlines()[1].startswith("a-name-that-is-rather-long")
    assert "x" * 90 in printed


def test_where_there_is_none_it_is_said(server: tuple[Script, Run]) -> None:
    script, run = server
    script.answers["GET", HERE] = (200, {"items": [OVER]})
    assert "no TrainingJobs in namespace ml that are not over (-a shows those too)" in run().output
    assert run("-o", "name").output == ""
