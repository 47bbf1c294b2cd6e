"""Every whole TrainingJob in the pages for users is one that the operator can read and the schema knows."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from kompakt_core.job.spec import parse_job
from tests.support.crds import schema

ROOT = Path(__file__).resolve().parents[2]
PAGES = ("docs/migration.md", "docs/tasks/less-memory.md", "docs/tasks/wait-or-not.md", "docs/tasks/write-a-pattern.md")


def manifests(page: str) -> list[dict[str, Any]]:
    """The TrainingJobs of a page."""
    blocks = (ROOT / page).read_text().split("```yaml\n")[1:]
    found = [yaml.safe_load(block.split("\n```")[0]) for block in blocks]
    return [one for one in found if one.get("kind") == "TrainingJob"]


def unknown(node: dict[str, Any], value: Any, path: str) -> list[str]:
    """Fields that the schema does not have."""
    if isinstance(value, list):
        return [wrong for item in value for wrong in unknown(node.get("items", {}), item, path)]
    if not isinstance(value, dict) or "properties" not in node:
        return []
    known = node["properties"]
    deeper = [wrong for key, child in value.items() if key in known for wrong in unknown(known[key], child, f"{path}.{key}")]
    return [f"{path}.{key}" for key in value if key not in known] + deeper


@pytest.mark.parametrize("page", PAGES)
def test_the_manifests_can_be_read_and_have_no_unknown_field(page: str) -> None:
    found = manifests(page)
    assert found
    for one in found:
        assert parse_job(one).roles
        assert unknown(schema("trainingjobs", "spec"), one["spec"], "spec") == []
