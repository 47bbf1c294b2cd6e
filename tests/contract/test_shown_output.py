"""What pages show as output of a command is what the command prints today; `python -m tools.docs.shown` names what is not run."""

import pytest

from tools.docs.repository import ROOT
from tools.docs.shown import run_page, shown_commands

PAGES = shown_commands(ROOT)


@pytest.mark.parametrize("page", PAGES)
def test_a_page_shows_what_its_commands_print(page: str) -> None:
    results = run_page(ROOT, PAGES[page])
    assert "\n".join(str(result) for result in results if result.problem) == ""
    if all(result.reason for result in results):
        pytest.skip(f"{page}: none is run: {'; '.join(sorted({result.reason for result in results}))}")


def test_pages_show_commands_that_are_run() -> None:
    assert {"README.md", "docs/placement.md", "docs/simulator.md"} <= PAGES.keys()
