"""docs/explain.md shows what the commands print, over the cluster that the page describes."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kompakt_cli import main
from kompakt_extender.wire import decode_args
from tests.support.cli.standin import kubeconfig, serving
from tests.support.extender.explain_client import SENSITIVE, ExplainClient
from tests.support.extender.leader import Leader
from tests.support.extender.world import World, pod

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "explain.md").read_text()


async def described() -> ExplainClient:
    """A DGX-1, eight A100 with bridges, three tainted nodes; a pod bound as kube-scheduler would have it, a gang that waits."""
    world = World()
    world.add_node("node-1", "dgx1-v100")
    world.add_node("node-2", "a100-pcie-8-bridge-pairs")
    for name in ("sim-0", "sim-1", "sim-2"):
        world.add_node(name, "dgx1-v100")
        world.nodes[name]["spec"] |= {"taints": [{"key": "mine", "effect": "NoSchedule"}]}
        world.put("nodes", name, world.nodes[name])
    client = ExplainClient(Leader(world))
    leader = client.leader
    leader.take_over()
    made = world.add_pod(pod("trainer", 4, annotations=SENSITIVE))
    leader.see()
    asked = decode_args(json.dumps({"Pod": made, "NodeNames": list(world.nodes)}).encode())
    leader.answers.filter(asked)
    leader.answers.prioritize(asked)
    assert await leader.bind("trainer", "node-1") == ""
    world.report("node-1")
    leader.see()
    world.add_gang("large", 2, 8)
    await leader.settle()
    return client


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
