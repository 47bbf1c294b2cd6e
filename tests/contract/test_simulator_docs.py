"""docs/simulator.md shows files as they are; that its commands print what it shows, tests/contract/test_shown_output.py tries."""

import re
from typing import Any

from kompakt_simulator.policies import SchedulingPolicy
from tools.docs.repository import ROOT
from tools.docs.shown import shown_commands

POLICY_PAGE = (ROOT / "docs" / "tasks" / "write-a-policy.md").read_text("utf-8")
PAGE = (ROOT / "docs" / "simulator.md").read_text("utf-8")


def test_the_page_begins_with_a_run() -> None:
    first = shown_commands(ROOT)["docs/simulator.md"][0]
    assert first.command.startswith("kompakt simulate --trace ")
    assert len(first.printed) > 2


def test_the_network_that_the_page_shows_is_the_file_that_its_command_names() -> None:
    shown = re.findall(r"^```json\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert shown == [(ROOT / "docs" / "examples" / "network.json").read_text("utf-8")]


def test_the_policy_that_the_page_shows_is_a_policy() -> None:
    (text,) = re.findall(r"^```python\n(.*?)^```", POLICY_PAGE, re.MULTILINE | re.DOTALL)
    found: dict[str, Any] = {}
    exec(text, found)
    assert isinstance(found["largest_first"], SchedulingPolicy)
