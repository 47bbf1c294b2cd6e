"""What the API server is told in CEL and what the parser decides in Python is the same, for any object that the schema takes.

cel-python implements CEL without the functions that Kubernetes adds: the rules that call such a function are compared on
clusters only, as are rules about changes, which the parser cannot judge.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import celpy
import msgspec
import pytest
import yaml
from celpy.adapter import json_to_cel
from hypothesis import find, given, settings
from hypothesis import strategies as st

from kompakt_core.job import model
from kompakt_core.job.compression import ActivationCompression
from kompakt_core.job.placement_fields import Consolidation
from kompakt_core.job.rules import JOB_NAME_RULE, ROLE_NAME_RULE
from kompakt_core.schema.meta import Declared, ValidationRule
from tools.crd.structural import structural

CRD = Path(__file__).resolve().parents[2] / "crds" / "trainingjobs.yaml"
OF_KUBERNETES = ".sum()"
KINDS: tuple[type[Declared], ...] = (
    model.TrainingJobSpec, model.Communication, model.WeightedEdge, Consolidation, ActivationCompression,
)  # fmt: skip
NAMES = st.text("a9-Aé\n", min_size=1, max_size=42) | st.from_regex(r"[a-z]([-a-z0-9]{0,38}[a-z0-9])?")
TARGETS = st.text("0.19eE\n-", max_size=11) | st.from_regex(r"0?\.[0-9]{1,9}", fullmatch=True)
# No line breaks: Python's $ stands before one at the end, that of the API server does not.
BUDGETS = st.text("0159.%GiMk-", max_size=8) | st.from_regex(r"[0-9]{1,3}(\.[0-9])?(%|Gi)", fullmatch=True)
Schema = dict[str, Any]


@dataclass(frozen=True)
class RuleCase:
    """A rule, and what it is about: `made` is what the parser's predicate gets of `given`, which the API server gets."""

    rule: ValidationRule
    given: st.SearchStrategy[Any]
    schema: Schema
    made: Callable[[Any], Any]

    def by_cel(self, given: Any) -> bool:
        return bool(PROGRAMS[self.rule.cel].evaluate({"self": json_to_cel(filled(given, self.schema))}))

    def by_parser(self, given: Any) -> bool:
        return self.rule.broken(self.made(given)) is None


def filled(value: Any, schema: Schema) -> Any:
    """With the defaults that the API server fills in."""
    if isinstance(value, list):
        return [filled(item, schema["items"]) for item in value]
    if not isinstance(value, dict):
        return value
    known = schema.get("properties", {})
    defaults = {name: field["default"] for name, field in known.items() if "default" in field}
    return defaults | {name: filled(inner, known.get(name, {})) for name, inner in value.items()}


def valid(schema: Schema, named: frozenset[str]) -> st.SearchStrategy[Any]:
    """Small values that the schema takes. Of objects the required fields, and those that a rule names."""
    match schema:
        case {"enum": words}:
            return st.sampled_from(words)
        case {"type": "integer"}:
            low, usual = schema.get("minimum", 0), schema.get("default", 0)
            return st.sampled_from([low, low + 1, low + 2, max(usual, low), usual + 1])
        case {"type": "array", "items": items}:
            unique = (lambda one: one["name"]) if "x-kubernetes-list-map-keys" in schema else None
            return st.lists(valid(items, named), min_size=schema.get("minItems", 0), max_size=3, unique_by=unique)
        case {"type": "object", "properties": fields}:
            must = set(schema.get("required", ()))
            drawn = {name: valid(field, named) for name, field in fields.items() if name in named | must}
            optional = {name: field for name, field in drawn.items() if name not in must}
            return st.fixed_dictionaries({name: drawn[name] for name in must}, optional=optional)
        case {"type": "string"}:
            return st.sampled_from(["chief", "worker"])
    return st.builds(dict)


def rules_of(kind: type[Declared]) -> Iterator[RuleCase]:
    schema = structural(kind)
    for rule in kind.RULES:
        if "oldSelf" not in rule.cel and OF_KUBERNETES not in rule.cel:
            named = frozenset(re.findall(r"\w+", rule.cel))
            yield RuleCase(rule, valid(schema, named), schema, lambda given: msgspec.convert(given, kind))


def rule_of(name: str) -> ValidationRule:
    """The one rule that stands at this field of activationCompression."""
    [field] = [field for field in msgspec.inspect.type_info(ActivationCompression).fields if field.name == name]  # type: ignore[attr-defined]
    rule: ValidationRule = field.type.extra["rules"][0]
    return rule


CASES = [
    RuleCase(JOB_NAME_RULE, NAMES.map(lambda name: {"metadata": {"name": name}}), {}, lambda given: given["metadata"]["name"]),
    RuleCase(ROLE_NAME_RULE, NAMES, {}, str),
    RuleCase(rule_of("target"), TARGETS, {}, str),
    RuleCase(rule_of("memory_budget"), BUDGETS, {}, str),
    *(case for kind in KINDS for case in rules_of(kind)),
]
ENVIRONMENT = celpy.Environment()
# Made here, since making one raises Python's recursion limit, which Hypothesis must not see happen inside a test.
PROGRAMS = {case.rule.cel: ENVIRONMENT.program(ENVIRONMENT.compile(case.rule.cel)) for case in CASES}
IDS = [case.rule.sentence[:60] for case in CASES]


def rules_in(schema: Any) -> Iterator[str]:
    """Every rule of a CRD but those of the pod template, which are Kubernetes' own."""
    if isinstance(schema, dict):
        yield from (one["rule"] for one in schema.get("x-kubernetes-validations", ()))
        yield from (rule for name, inner in schema.items() if name != "template" for rule in rules_in(inner))
    elif isinstance(schema, list):
        yield from (rule for inner in schema for rule in rules_in(inner))


def test_every_rule_of_the_crd_is_compared_but_changes_and_what_kubernetes_adds_to_cel() -> None:
    compared = {case.rule.cel for case in CASES}
    left = set(rules_in(yaml.load(CRD.read_text(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)))) - compared
    assert len([cel for cel in left if OF_KUBERNETES in cel]) == 2
    assert all("oldSelf" in cel or OF_KUBERNETES in cel for cel in left)
    assert len(compared) == len(CASES) == 20


@pytest.mark.parametrize("case", CASES, ids=IDS)
@given(data=st.data())
@settings(max_examples=40)
def test_the_api_server_and_the_parser_decide_alike(case: RuleCase, data: st.DataObject) -> None:
    given = data.draw(case.given)
    assert case.by_cel(given) == case.by_parser(given)


@pytest.mark.parametrize("case", CASES, ids=IDS)
@pytest.mark.parametrize("good", [True, False])
def test_objects_that_keep_and_that_break_each_rule_are_tried(case: RuleCase, good: bool) -> None:
    assert case.by_cel(find(case.given, lambda given: case.by_parser(given) is good)) is good
