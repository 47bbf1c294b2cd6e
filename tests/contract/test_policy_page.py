"""The policy that docs/tasks/write-a-policy.md shows is one that the simulator takes."""

import re
from pathlib import Path
from typing import Any

from kompakt_simulator.policies import SchedulingPolicy

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "tasks" / "write-a-policy.md").read_text("utf-8")


def test_the_policy_that_the_page_shows_is_a_policy() -> None:
    (text,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    found: dict[str, Any] = {}
    exec(text, found)
    assert isinstance(found["largest_first"], SchedulingPolicy)
