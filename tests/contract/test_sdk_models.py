"""The SDK's types of spec and status against the CRD in crds/: the same fields, required or not, of the same types."""

from typing import Any, Literal, NotRequired, get_args, get_origin, get_type_hints, is_typeddict

import pytest

from kompakt import TrainingJobSpecDict, TrainingJobStatusDict
from tests.support.crds import schema

SCALARS = {str: "string", int: "integer", bool: "boolean"}


def differences(hint: Any, node: dict[str, Any], path: str) -> list[str]:
    """Where a type and a schema say different things."""
    if get_origin(hint) is NotRequired:
        (hint,) = get_args(hint)
    if is_typeddict(hint):
        return of_objects(hint, node, path)
    arguments, origin = get_args(hint), get_origin(hint)
    if origin is Literal:
        return [] if list(arguments) == node.get("enum") else [f"{path}: {arguments} for {node.get('enum')}"]
    if origin is list:
        return differences(arguments[0], node["items"], f"{path}[]")
    if origin is dict and arguments[1] is not Any:
        return differences(arguments[1], node["additionalProperties"], f"{path}{{}}")
    if origin is dict:
        return [] if node["type"] == "object" else [f"{path}: an object for {node['type']}"]
    if arguments == (int, str):
        return [] if node.get("x-kubernetes-int-or-string") else [f"{path}: a quantity"]
    return [] if SCALARS[hint] == node.get("type") and "enum" not in node else [f"{path}: {hint} for {node}"]


def of_objects(kind: Any, node: dict[str, Any], path: str) -> list[str]:
    known, declared = node["properties"], get_type_hints(kind, include_extras=True)
    required = set(kind.__required_keys__) ^ set(node.get("required", ()))
    found = [f"{path}.{name}: in one of them only" for name in known.keys() ^ declared.keys()]
    found += [f"{path}.{name}: required in one of them only" for name in required]
    both = known.keys() & declared.keys()
    return found + [line for name in sorted(both) for line in differences(declared[name], known[name], f"{path}.{name}")]


@pytest.mark.parametrize(("part", "kind"), [("spec", TrainingJobSpecDict), ("status", TrainingJobStatusDict)])
def test_types_and_crd_have_the_same_fields(part: str, kind: Any) -> None:
    assert differences(kind, schema("trainingjobs", part), part) == []


def test_a_difference_is_seen() -> None:
    of_batch = {"type": "object", "properties": {"phase": {"type": "integer"}}, "required": ["phase"]}
    found = differences(TrainingJobStatusDict, of_batch, "status")
    assert "status.attempt: in one of them only" in found
    assert "status.phase: required in one of them only" in found
    assert any(line.startswith("status.phase: ('") for line in found)
