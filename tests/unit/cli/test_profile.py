"""`kompakt profile` without a run: what it refuses, what follows from figures, how they are kept and shown."""

import contextlib
import io
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from typer.testing import CliRunner

from kompakt_cli import profile as profile_command
from kompakt_cli import profile_document
from kompakt_cli.main import application
from kompakt_cli.profile_runs import Nodes, ProfilePlan, Script, command, gpus_of, read_script, said_by_script
from kompakt_cli.profile_table import render
from kompakt_core.errors import InvalidInput
from kompakt_core.profile import document
from kompakt_core.profile.document import Profile, ProfiledRun

RUN = ProfiledRun(0.2, (0.19, 0.2, 0.2, 0.21), 0.0, 2, 531_400_000, 2)
RUNS = {"one": replace(RUN, ranks=1), "all": replace(RUN, step_seconds=0.25), "warm": replace(RUN, step_seconds=0.4)}
PROFILE = Profile("box", 2, "GPU", 5, 20, RUNS)


def kompakt(*words: str) -> Any:
    """The command's end: an error as it was raised, else what was printed."""
    done = CliRunner().invoke(application(), ["profile", *words])
    return str(done.exception) if done.exception is not None else done.stdout


@pytest.fixture
def script(tmp_path: Path) -> str:
    (tmp_path / "train.py").write_text("")
    return str(tmp_path / "train.py")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ((), "give a training to profile, after `--`"),
        (("--", "torchrun", "train.py"), "torchrun is no Python; give it as you would run it on one device"),
        (("--", "python-that-is-not-there", "x.py"), "there is no program python-that-is-not-there"),
        (("--", "python3"), "python3: no script"),
        (("--", "python3", "-c", "pass"), "no script"),
        (("--", "python3", "-m"), "no script"),
        (("--", "python3", "-m", "torch.distributed.run", "x.py"), "starts on several devices itself"),
        (("--", "python3", "nowhere.py"), "there is no script nowhere.py"),
        (("--annotate",), "--annotate belongs to --job"),
        (("-o", "svg"), "--output: unknown value 'svg'; use one of table, json"),
        (("--read", "nowhere.json"), "profile nowhere.json: No such file or directory"),
        (("--prices", "nowhere.csv"), "--prices nowhere.csv: No such file or directory"),
    ],
)
def test_what_cannot_be_profiled_is_refused_with_what_would_be_right(words: tuple[str, ...], sentence: str) -> None:
    assert sentence in kompakt(*words)


def test_what_belongs_to_a_good_script_is_checked_too(script: str) -> None:
    for words, sentence in (
        (("--nodes", "2"), "--nodes 2 needs --node-rank below 2 and --master HOST:PORT"),
        (("--nodes", "2", "--node-rank", "2", "--master", "h:1"), "--nodes 2 needs"),
        (("--master", "h:1"), "belong to --nodes 2 or more"),
        (("--data", "/nowhere"), "--data /nowhere: not there"),
    ):
        assert sentence in kompakt(*words, "--", sys.executable, script)
    assert read_script([sys.executable, "-u", script, "--lr", "1"]) == Script(sys.executable, (script, "--lr", "1"))
    assert read_script([sys.executable, "-m", "pkg.train", "-x"]).words == ("-m", "pkg.train", "-x")


def test_a_python_without_torch_is_named(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('No module named torch')")
    fake = tmp_path / "python-without-torch"
    fake.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path} exec {sys.executable} "$@"\n')
    fake.chmod(0o755)
    with pytest.raises(InvalidInput, match=r"cannot import torch \(ImportError: No module named torch\)"):
        gpus_of(Script(str(fake), ("x.py",)))


def test_what_the_script_said_last_is_not_hidden_by_torchrun() -> None:
    said = ["hello", "ValueError: invalid literal for int() with base 10: 'many'"]
    torchrun = "E1122 00:55:12.839000 7002 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: 1)\nTraceback"
    assert said_by_script("\n".join([*said, torchrun])) == said
    assert said_by_script("\n".join(said)) == said
    assert len(said_by_script(torchrun)) == 2


def test_several_machines_are_one_training() -> None:
    plan = ProfilePlan(Script("python3", ("train.py", "--lr", "1")), 5, 20, 60.0, Nodes(2, 1, "10.0.0.1:29400"))
    words = ["--nnodes=2", "--node-rank=1", "--master-addr=10.0.0.1", "--master-port=29400", "train.py", "--lr", "1"]
    assert command(plan, 4) == ["python3", "-m", "torch.distributed.run", "--nproc-per-node=4", *words]
    assert "--standalone" in command(replace(plan, nodes=Nodes()), 1)


def test_stalls_and_sensitivity_follow_from_the_runs() -> None:
    told = profile_document.to_json(PROFILE, 16)
    assert told["stalls"]["interconnect"] == {"seconds": pytest.approx(0.05), "percent": pytest.approx(20), "of": "all"}
    assert told["stalls"]["prep"]["percent"] == pytest.approx(37.5)
    assert (told["stalls"]["network"], told["stalls"]["fetch"]) == (None, None)
    assert (round(told["communication"], 2), told["sensitivity"]) == (0.4, "High")


def test_nothing_is_said_of_what_was_not_seen() -> None:
    apart = replace(PROFILE, runs={mode: replace(run, ranks=1) for mode, run in RUNS.items()})
    told = profile_document.to_json(apart, 16)
    assert (told["stalls"]["interconnect"], told["communication"], told["sensitivity"]) == (None, None, None)
    blind = replace(PROFILE, runs={mode: replace(run, loaders=0) for mode, run in RUNS.items()})
    assert profile_document.to_json(blind, 16)["stalls"]["prep"] is None


def test_what_is_written_can_be_read_again_and_shown() -> None:
    text = json.dumps(profile_document.to_json(PROFILE, 16))
    assert document.read(text, "p.json") == PROFILE
    console = Console(width=200, file=io.StringIO())
    for part in render(PROFILE, 16):
        console.print(part)
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert "20.0 %" in shown
    assert "bandwidthSensitivity: High" in shown
    assert "not measured: needs two machines: --nodes with --single" in shown


def test_the_machines_of_halves_are_kept_and_are_two_where_an_older_file_says_nothing() -> None:
    halves = replace(PROFILE, runs={**RUNS, "halves": RUN}, half_machines=4, half_machine="half")
    told = profile_document.to_json(halves, 16)
    assert document.read(json.dumps(told), "p.json") == halves
    older = {key: value for key, value in told.items() if key not in ("halfMachines", "halfMachine")}
    assert document.read(json.dumps(older), "p.json") == replace(halves, half_machines=2, half_machine="")


def test_over_several_machines_the_single_one_keeps_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kompakt_cli.profile.gpus_of", lambda _: 2)
    monkeypatch.setattr("kompakt_cli.profile.measure", lambda *_: (RUN, None))
    plan = ProfilePlan(Script("python3", ("train.py",)), 5, 20, 60.0, Nodes(2, 0, "10.0.0.1:29400"))
    single = replace(PROFILE, machine="big", devices=4)
    found = profile_command._measured(plan, 2, "half", single)
    assert (found.machine, found.half_machine, found.half_machines, found.devices) == ("big", "half", 2, 4)
    assert list(found.runs) == ["one", "all", "warm", "halves"]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"halfMachines": 1}, "halfMachines: got 1; expected a number from 2 up"),
        ({"kompaktProfile": 2}, "p.json: no profile of version 1"),
        ({"runs": {"half": {}}}, r"runs: got \['half'\]; expected some of one, all, cold, warm, halves"),
        ({"runs": {}}, "runs: got none"),
        ({"runs": {"all": {"parts": [], "step_seconds": 0}}}, r"runs\.all\.step_seconds: got 0; expected a number from 1e-09 up"),
        ({"runs": {"all": 3}}, r"runs\.all: got 3; expected an object"),
        ({"machine": ""}, "machine: got ''; expected a word"),
        ({"devices": float("nan")}, "devices: got nan"),
    ],
)
def test_a_broken_profile_is_refused_by_field(change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        document.read(json.dumps(profile_document.to_json(PROFILE, 16) | change), "p.json")


@given(st.recursive(st.none() | st.booleans() | st.floats() | st.text(max_size=5), lambda inner: st.lists(inner, max_size=3)))
def test_any_json_is_a_profile_or_a_sentence(value: Any) -> None:
    good = profile_document.to_json(PROFILE, 16)
    for key in good:
        with contextlib.suppress(InvalidInput):
            document.read(json.dumps(good | {key: value}), "p.json")
    with pytest.raises(InvalidInput, match=r"p\.json: no (JSON|profile)"):
        document.read(json.dumps(value), "p.json")
