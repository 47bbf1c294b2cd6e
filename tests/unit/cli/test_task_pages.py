"""Pages of docs/tasks show what the commands print, over the clusters and machines that they describe."""

import json
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from kompakt_cli import main
from tests.support.cli.described import described
from tests.support.cli.standin import kubeconfig, serving
from tests.support.extender.explain_client import ExplainClient
from tests.support.extender.scenario import played

TASKS = Path(__file__).resolve().parents[3] / "docs" / "tasks"
WAITING = "racks / 4 pods on a0+a1+b0+b1 / train comes 2x4 Fixed"


async def waiting() -> ExplainClient:
    return ExplainClient(await played(WAITING))


def printed(client: Coroutine[Any, Any, ExplainClient], words: list[str], folder: Path) -> Iterator[str]:
    with serving(client) as (_, port):
        result = CliRunner(env={"COLUMNS": "100"}).invoke(
            main.application(), [*words, f"--kubeconfig={kubeconfig(folder, port)}"]
        )
        yield from (line.rstrip() for line in result.output.rstrip().splitlines())


def shown(page: str, command: str) -> list[str]:
    """The lines below a command."""
    return page.split(f"$ {command}\n")[1].split("\n```")[0].splitlines()


def test_a_gang_that_waits_for_a_level_is_explained_as_the_page_shows(tmp_path: Path) -> None:
    page = (TASKS / "wait-or-not.md").read_text()
    assert [*printed(waiting(), ["explain", "job", "train"], tmp_path)] == shown(page, "kompakt explain job train")


async def test_its_status_is_the_one_that_the_page_shows() -> None:
    page = (TASKS / "wait-or-not.md").read_text()
    leader = await played(WAITING)
    assert json.loads(page.split("```json\n")[1].split("```")[0]) == leader.world.jobs["train"]["status"]["scheduling"]


def test_edges_of_ones_own_are_placed_as_the_page_shows() -> None:
    page = (TASKS / "write-a-pattern.md").read_text()
    command = "kompakt place --machine dgx1-v100 --gpus 4 --edges 0-1:3,1-2,2-3:3"
    result = CliRunner().invoke(main.application(), command.split()[1:])
    assert [line.rstrip() for line in result.output.splitlines()] == shown(page, command)


@pytest.mark.parametrize("command", ["explain job large", "explain nodes"])
def test_a_gang_without_room_and_the_nodes_are_explained_as_the_page_shows(command: str, tmp_path: Path) -> None:
    page = (TASKS / "read-a-report.md").read_text()
    assert [*printed(described(), command.split(), tmp_path)] == shown(page, f"kompakt {command}")
