"""docs/simulator.md shows files as they are; that its commands print what it shows, tests/contract/test_shown_output.py tries."""

import re

from tools.docs.repository import ROOT
from tools.docs.shown import shown_commands

PAGE = (ROOT / "docs" / "simulator.md").read_text("utf-8")


def test_the_page_begins_with_a_run() -> None:
    first = shown_commands(ROOT)["docs/simulator.md"][0]
    assert first.command.startswith("kompakt simulate --trace ")
    assert len(first.printed) > 2


def test_the_network_that_the_page_shows_is_the_file_that_its_command_names() -> None:
    shown = re.findall(r"^```json\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert shown == [(ROOT / "docs" / "examples" / "network.json").read_text("utf-8")]
