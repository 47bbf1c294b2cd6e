"""docs/explain.md shows what the commands print, over the cluster that the page describes."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kompakt_cli import main
from tests.support.cli.described import described
from tests.support.cli.standin import kubeconfig, serving

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "explain.md").read_text()


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with serving(described()) as (_, found):
        yield found


def shown() -> list[tuple[str, list[str]]]:
    """Commands of the page and the lines under them."""
    blocks = [block.split("\n```")[0] for block in PAGE.split("```console\n")[1:]]
    parts = [part for block in blocks for part in block.removeprefix("$ ").split("\n$ ")]
    return [(part.split("\n")[0], part.rstrip().split("\n")[1:]) for part in parts]


@pytest.mark.parametrize(("command", "lines"), shown(), ids=lambda found: found if isinstance(found, str) else "")
def test_the_page_shows_what_is_printed(command: str, lines: list[str], port: int, tmp_path: Path) -> None:
    words = [*command.split()[1:], f"--kubeconfig={kubeconfig(tmp_path, port)}"]
    result = CliRunner(env={"COLUMNS": "100"}).invoke(main.application(), words)
    assert [line.rstrip() for line in result.output.rstrip().split("\n")] == lines


def test_the_page_has_commands() -> None:
    assert [command.split()[1] for command, _ in shown()] == ["explain", "explain", "what-if"]
