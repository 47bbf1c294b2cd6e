"""`kompakt tour`: what it shows on a machine without GPUs and on one with them, and where a part is missing."""

import json
import os
import re
import shutil
import stat
import sys
from importlib.resources import files
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from kompakt_cli import main, tour
from kompakt_core.errors import InvalidInput

RECORDED = json.loads((files("kompakt_core.topology") / "data" / "topo_matrices.json").read_text())["matrices"][0]["matrix"]
HEAD = "\t".join(["", *(f"GPU{number}" for number in range(len(RECORDED)))])
MATRIX = "\n".join([HEAD, *("\t".join([f"GPU{number}", *row]) for number, row in enumerate(RECORDED))]) + "\n"


def run(folder: Path, *words: str) -> Result:
    return CliRunner().invoke(main.application(), ["tour", "--no-open", "--out", str(folder), *words])


@pytest.fixture
def without_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tour, "find_spec", lambda name: None)


@pytest.fixture
def quick(without_training: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the simulator as well."""
    monkeypatch.setattr(tour, "_has", lambda command: command == "run")


def nvidia_smi(folder: Path, prints: str, code: int = 0) -> None:
    """A program of that name that prints what a real machine's printed."""
    (folder / "matrix").write_text(prints)
    program = folder / "nvidia-smi"
    program.write_text(f'#!/bin/sh\n[ "$*" = "topo -m" ] || exit 9\ncat {folder / "matrix"}\nexit {code}\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return folder


def test_without_pytorch_it_places_and_schedules_and_says_what_to_install(tmp_path: Path, without_training: None) -> None:
    found = run(tmp_path / "out")
    assert found.exit_code == 0, found.output
    assert f"$ {tour.typed()} place --machine dgx1-v100 --gpus 4" in found.output
    assert re.search(r"by chance 8\.2 GB/s on average, 6\.0 at worst", found.output)
    rows = re.findall(r"^(fifo|las|tiresias|gandiva|kompakt) +(\d+\.\d+) ", found.output, re.M)
    assert [name for name, _ in rows] == ["fifo", "las", "tiresias", "gandiva", "kompakt"]
    assert "Left out: PyTorch is not installed: make sync-torch" in found.output
    page = (tmp_path / "out" / "index.html").read_text()
    assert page.count("<svg xmlns=") == 1
    assert "srcdoc=" in page
    assert all(average in page for _, average in rows)
    assert "<script" not in page
    assert "http" not in page.replace("http://www.w3.org/2000/svg", "")


def test_what_to_go_on_with_can_be_typed_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setattr(sys, "executable", str(tmp_path / ".venv" / "bin" / "python"))
    assert tour.typed() == f"{tmp_path}/.venv/bin/python -m kompakt_cli"
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / ".venv" / "bin" / "kompakt").touch()
    assert tour.typed() == f"{tmp_path}/.venv/bin/kompakt"
    monkeypatch.chdir(tmp_path)
    assert tour.typed() == ".venv/bin/kompakt"
    go_on = tour._scheduling(tmp_path).go_on
    assert go_on.startswith(".venv/bin/kompakt simulate ")
    assert f"--network {tour.DATA / 'network.json'}" in go_on
    monkeypatch.setattr(shutil, "which", lambda name: "/usr/bin/kompakt")
    assert tour.typed() == "kompakt"


def test_without_a_checkout_pytorch_comes_from_pip(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, without_training: None
) -> None:
    monkeypatch.setattr(tour, "CHECKOUT", tmp_path / "Makefile")
    assert tour._no_training() == "PyTorch is not installed: pip install torch"


def test_a_machine_with_gpus_shows_its_own_links(tmp_path: Path, path: Path, quick: None) -> None:
    nvidia_smi(path, MATRIX)
    found = run(tmp_path)
    assert found.exit_code == 0, found.output
    assert "GPUs a job should get on this machine" in found.output
    assert (tmp_path / "topology.txt").read_text() == MATRIX


@pytest.mark.parametrize(("prints", "code"), [("", 0), ("no devices", 9), (MATRIX, 9)])
def test_a_driver_that_shows_no_links_is_no_error(tmp_path: Path, path: Path, quick: None, prints: str, code: int) -> None:
    nvidia_smi(path, prints, code)
    assert "a DGX-1 (V100), since this machine shows no link graph of its own" in " ".join(run(tmp_path).output.split())


def test_without_the_simulator_it_says_how_to_get_it(tmp_path: Path, quick: None) -> None:
    assert "Left out: kompakt-simulator is not installed; from a checkout: pip install ./simulator" in run(tmp_path).output


def test_a_step_that_fails_is_shown_with_its_error_and_ends_the_tour_with_1(
    tmp_path: Path, quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tour, "DEFAULT_MACHINE", "no-such-machine")
    found = run(tmp_path)
    assert found.exit_code == 1
    assert "unknown machine 'no-such-machine'; known are" in found.output
    assert "It ended with code 2." in found.output


@pytest.mark.parametrize("folder", ["file/out", "out"], ids=["below a file", "with a folder in the page's place"])
def test_a_folder_that_cannot_be_written_is_refused_with_a_sentence(tmp_path: Path, folder: str) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "out" / "index.html").mkdir(parents=True)
    found = run(tmp_path / folder)
    assert isinstance(found.exception, InvalidInput)
    assert "name a folder you may write to" in str(found.exception)


def test_pictures_of_an_earlier_tour_do_not_stand_in_the_page(tmp_path: Path, quick: None) -> None:
    (tmp_path / "simulation.html").write_text("earlier")
    run(tmp_path)
    assert "earlier" not in (tmp_path / "index.html").read_text()


def test_its_costs_of_communication_are_those_that_the_docs_show() -> None:
    shown = Path(__file__).parents[3] / "docs" / "examples" / "network.json"
    assert (tour.DATA / "network.json").read_text() == shown.read_text()
