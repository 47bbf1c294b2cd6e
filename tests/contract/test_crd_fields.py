"""What `kubectl explain` shows of our resources, and how large they may be."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.crds import CRDS, crd, schema
from tools.crd import gputopology

FILES = ("trainingjobs", "gputopologies")
# Numbers that count nothing: names, positions, settings of others.
UNITLESS = {
    "attempt", "observedGeneration", "priority", "rank", "index", "a", "b", "from", "to", "id", "cliqueId", "moduleId",
    "numaNode", "xid", "generation",
}  # fmt: skip
# What the API server takes of all annotations together, and how much we leave to chart and tools.
ANNOTATIONS = 262_144
SPARE = 12_144
Field = tuple[str, dict[str, Any]]


def fields(node: dict[str, Any], path: str) -> Iterator[Field]:
    """Every field of ours: not the pod template's, and not those that the API server describes itself."""
    for key, child in node.get("properties", {}).items():
        yield f"{path}.{key}", child
        if key != "template":
            yield from fields(child, f"{path}.{key}")
            yield from fields(child.get("items", {}), f"{path}.{key}[]")


def ours(name: str) -> list[Field]:
    parts = {key: schema(name, key) for key in ("spec", "status")}
    return [(name, schema(name)), *fields({"properties": parts}, crd(name)["spec"]["names"]["singular"])]


ALL = [field for name in FILES for field in ours(name)]
LEAVES = [(path, node) for path, node in ALL if not node.get("properties") and not node.get("items", {}).get("properties")]


@pytest.mark.parametrize(("path", "node"), ALL, ids=[path for path, _ in ALL])
def test_each_field_says_what_it_does(path: str, node: dict[str, Any]) -> None:
    text = node.get("description", "")
    assert re.match(r"[A-Za-z].{9,}", text), f"{path} has no description"


@pytest.mark.parametrize(("path", "node"), LEAVES, ids=[path for path, _ in LEAVES])
def test_each_value_has_an_example_and_each_count_a_unit(path: str, node: dict[str, Any]) -> None:
    name = path.rpartition(".")[2]
    if name == "template":
        return
    text = node["description"]
    assert "Example: " in text, f"{path} has no example"
    counts = node.get("type") == "integer" or "x-kubernetes-int-or-string" in node
    assert not counts or name in UNITLESS or "Unit: " in text, f"{path} has no unit"
    assert "default" not in node or "Default: " in text, f"{path} does not name its default"


def test_the_pod_template_has_no_descriptions_but_ours() -> None:
    template = next(node for path, node in ALL if path.endswith("roles[].template"))
    assert "description" in template
    assert [path for path, node in fields(template, "template") if "description" in node] == []


@pytest.mark.parametrize("name", FILES)
def test_a_crd_fits_where_client_side_apply_keeps_a_copy(name: str) -> None:
    """kubectl writes the whole object as JSON into one annotation; the file itself is shown by `kubectl get -o yaml`."""
    copy = len(json.dumps(crd(name), separators=(",", ":")).encode()) + 1
    assert copy + SPARE <= ANNOTATIONS, f"{copy} bytes as an annotation"
    assert (CRDS / f"{name}.yaml").stat().st_size < 250_000


def test_short_names_are_known_and_differ() -> None:
    short = [crd(name)["spec"]["names"]["shortNames"] for name in FILES]
    assert short == [["tj"], ["gput"]]
    # Those of Kubernetes itself, by `kubectl api-resources`, and of what is installed beside us most often.
    others = "cm cs csr crd cj deploy ds ep ev hpa ing limits netpol no ns pc pdb po pv pvc quota rc rs sa sc sts svc cq lq rf wl"
    assert not set(others.split()) & {name for names in short for name in names}


def test_a_crd_that_lost_a_description_would_be_noticed() -> None:
    broken = gputopology.gputopology()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    del broken["properties"]["spec"]["properties"]["source"]["description"]
    silent = [path for path, node in fields(broken, "gputopology") if not node.get("description")]
    assert [path for path in silent if path.count(".") > 1] == ["gputopology.spec.source"]
