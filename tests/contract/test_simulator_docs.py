"""docs/simulator.md does what it says: its commands run from the checkout as printed, and its files are those it shows."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "simulator.md").read_text("utf-8")
BLOCKS = re.findall(r"^```console\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
WRITTEN = re.compile(r" > \S+$")  # into the checkout; here into a folder that goes away


def commands(block: str) -> list[tuple[str, list[str]]]:
    """Each command of a block with the lines printed below it; none: the page does not show its output."""
    found: list[tuple[str, list[str]]] = []
    for line in block.splitlines():
        if line.startswith("$ "):
            found.append((line.removeprefix("$ "), []))
        else:
            found[-1][1].append(line)
    return found


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """As after `make sync`, but what pip installs goes to a folder of the test's, from no package index."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    pip = {"PIP_TARGET": str(tmp_path), "PIP_NO_INDEX": "1", "PIP_NO_DEPS": "1", "PIP_NO_BUILD_ISOLATION": "0"}
    return {**os.environ, **pip, "PATH": path, "PYTHONPATH": str(tmp_path), "COLUMNS": "120"}


def test_the_page_begins_with_a_run() -> None:
    command, printed = commands(BLOCKS[0])[0]
    assert command.startswith("kompakt simulate --trace ")
    assert len(printed) > 2


@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_the_commands_of_the_page_run_as_printed(block: str, environment: dict[str, str], tmp_path: Path) -> None:
    for command, printed in commands(block):
        there = WRITTEN.sub(f" > {tmp_path}/written", command)
        done = subprocess.run(["bash", "-ec", there], cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{command}\n{done.stderr}"
        if printed:
            assert [line.rstrip() for line in done.stdout.splitlines()] == printed
        if there != command:
            assert (tmp_path / "written").stat().st_size > 0


def test_the_network_that_the_page_shows_is_the_file_that_its_command_names() -> None:
    shown = re.findall(r"^```json\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert shown == [(ROOT / "docs" / "examples" / "network.json").read_text("utf-8")]


def test_every_file_that_the_page_links_to_is_there() -> None:
    linked = [target.partition("#")[0] for target in re.findall(r"\]\(([^)]+)\)", PAGE)]
    assert [target for target in linked if target and not (ROOT / "docs" / target).exists()] == []
