"""The TrainingJob schema against parse_job: the same fields, the same defaults; and the files against their generator."""

import copy
import re
from pathlib import Path
from typing import Any

import pytest

from kompakt_core.errors import InvalidInput
from kompakt_core.job import model
from kompakt_core.job.spec import parse_job
from tests.support.crds import schema
from tools.crd import __main__ as generator
from tools.crd import podtemplate

ROOT = Path(__file__).resolve().parent.parent.parent
TEMPLATE = {"spec": {"containers": [{"name": "trainer", "image": "i"}]}}
MINIMAL: dict[str, Any] = {
    "metadata": {"name": "j", "namespace": "d"},
    "spec": {"roles": [{"name": "worker", "gpusPerReplica": 2, "template": TEMPLATE}]},
}


def with_defaults(node: dict[str, Any], value: Any) -> Any:
    """What the API server stores: defaults filled in wherever their object is present."""
    if isinstance(value, dict) and "properties" in node:
        filled = {key: child["default"] for key, child in node["properties"].items() if "default" in child and key not in value}
        return {**filled, **{k: with_defaults(node["properties"].get(k, {}), v) for k, v in value.items()}}
    if isinstance(value, list):
        return [with_defaults(node.get("items", {}), item) for item in value]
    return value


BLOCKS: list[dict[str, Any]] = [
    {},
    {"communication": {}},
    {"placement": {"consolidation": {}}},
    {"placement": {"consolidation": {"mode": "Fixed", "machineWaitSeconds": 5}}},
    {"activationCompression": {"overrides": [{"modules": "a"}]}},
    {"runPolicy": {"preemption": {}, "successPolicy": {}, "podFailurePolicy": {"rules": [{"onExitCodes": {"values": [1]}}]}}},
]
FULL: dict[str, Any] = MINIMAL["spec"] | {key: value for block in reversed(BLOCKS) for key, value in block.items()}


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: next(iter(block), "nothing"))
def test_each_default_of_the_schema_is_the_parsers_default(block: dict[str, Any]) -> None:
    plain = copy.deepcopy(MINIMAL)
    plain["spec"] |= block
    assert parse_job({**plain, "spec": with_defaults(schema("trainingjobs", "spec"), plain["spec"])}) == parse_job(plain)


def properties(node: dict[str, Any], path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Every field of the schema but the pod template's."""
    found = []
    for key, child in node.get("properties", {}).items():
        found.append((*path, key))
        if key != "template":
            found += properties(child, (*path, key)) + properties(child.get("items", {}), (*path, key, "0"))
    return found


def planted(path: tuple[str, ...], value: Any) -> Any:
    """An object that holds `value` at this path and nothing else."""
    for key in reversed(path):
        value = [value] if key == "0" else {key: value}
    return value


@pytest.mark.parametrize("path", properties(schema("trainingjobs", "spec")), ids=".".join)
def test_each_field_of_the_schema_is_known_to_the_parser(path: tuple[str, ...]) -> None:
    """A value of a wrong type is refused for its type and under its own name, never as an unknown field."""
    spec = {**copy.deepcopy(MINIMAL["spec"]), **planted(path, object())}
    with pytest.raises(InvalidInput) as caught:
        parse_job({**MINIMAL, "spec": spec})
    assert "unknown field" not in str(caught.value)


def objects(value: Any) -> list[dict[str, Any]]:
    """Every object inside the spec but the pod templates."""
    if isinstance(value, list):
        return [found for item in value for found in objects(item)]
    if not isinstance(value, dict):
        return []
    return [value, *(found for key, child in value.items() if key != "template" for found in objects(child))]


@pytest.mark.parametrize("index", range(len(objects(FULL))))
def test_the_parser_refuses_a_field_that_the_schema_lacks(index: int) -> None:
    spec = copy.deepcopy(FULL)
    objects(spec)[index]["noSuchField"] = 1
    with pytest.raises(InvalidInput, match="noSuchField: unknown field"):
        parse_job({**MINIMAL, "spec": spec})


def test_the_files_are_what_the_generator_makes_of_the_committed_template() -> None:
    for name, text in generator.files(generator.committed_template()).items():
        assert (ROOT / "crds" / name).read_text() == text, f"run python -m tools.crd: crds/{name} is not what it makes"


def test_the_pages_are_what_the_generator_makes() -> None:
    for name, text in generator.pages().items():
        assert (ROOT / "docs" / "reference" / name).read_text() == text, f"run python -m tools.crd: docs/reference/{name} is old"


def test_the_types_of_the_sdk_are_what_the_generator_makes() -> None:
    for name, text in generator.models().items():
        path = f"sdk/kompakt/models/{name}"
        assert (ROOT / path).read_text() == text, f"run python -m tools.crd: {path} is old"


@pytest.mark.parametrize("name", ["trainingjob.md", "gputopology.md"])
def test_each_link_inside_a_page_leads_to_a_heading(name: str) -> None:
    text = (ROOT / "docs" / "reference" / name).read_text()
    headings = {re.sub(r"[^a-z0-9-]", "", line.lstrip("# ").lower()) for line in text.splitlines() if line.startswith("#")}
    assert (found := set(re.findall(r"\(#([^)]*)\)", text)))
    assert found <= headings


def test_the_committed_template_is_the_pinned_kubernetes_own() -> None:
    try:
        document = podtemplate.find_document()
    except podtemplate.SourceMissing as missing:
        pytest.skip(str(missing))
    assert podtemplate.pod_template(document) == generator.committed_template()


def test_every_placement_policy_that_a_job_may_name_has_a_row() -> None:
    from kompakt_core.placement.policies import POLICIES

    assert set(POLICIES) == set(model.PlacementPolicy)
