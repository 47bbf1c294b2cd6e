"""Declared fields: their examples are ones that the reader takes, and its errors name path and remedy."""

from collections.abc import Iterator
from typing import Annotated, Any, ClassVar

import pytest
from msgspec import inspect

from kompakt_core.job.model import TrainingJobSpec
from kompakt_core.job.status_fields import TrainingJobStatus
from kompakt_core.schema import reader
from kompakt_core.schema.meta import Declared, ValidationRule, about, unless
from kompakt_core.schema.reader import read
from kompakt_core.schema.words import FieldError
from kompakt_core.topology.resource import GPUTopologySpec, GPUTopologyStatus
from tests.support.core.outcomes import refusal


def fields(kind: Any, path: str) -> Iterator[tuple[str, Any, inspect.Field]]:
    """Every field inside, with its path and the object that it belongs to."""
    known: Any = inspect.type_info(kind)
    for field in known.fields:
        yield f"{path}.{field.encode_name}", kind, field
        for inner in parts(field.type):
            yield from fields(inner, f"{path}.{field.encode_name}")


def parts(node: Any) -> list[Any]:
    if isinstance(node, inspect.StructType):
        return [node.cls]
    inside = getattr(node, "types", None) or [getattr(node, name) for name in ("type", "item_type") if hasattr(node, name)]
    return [part for one in inside for part in parts(one)]


def examples(field: inspect.Field) -> list[Any]:
    node = next((part for part in getattr(field.type, "types", [field.type]) if isinstance(part, inspect.Metadata)), None)
    return list((node.extra_json_schema or {}).get("examples", [])) if node else []


KINDS = {"TrainingJob.spec": TrainingJobSpec, "GPUTopology.spec": GPUTopologySpec}
CASES = [(path, kind, f, value) for root, k in KINDS.items() for path, kind, f in fields(k, root) for value in examples(f)]


@pytest.mark.parametrize(("path", "kind", "field", "value"), CASES, ids=[case[0] for case in CASES])
def test_each_example_is_one_that_the_reader_takes(path: str, kind: Any, field: inspect.Field, value: Any) -> None:
    reader._fields(kind)[field.encode_name].read(value, path)


@pytest.mark.parametrize("kind", [TrainingJobStatus, GPUTopologyStatus])
def test_each_example_of_a_status_has_the_fields_type(kind: Any) -> None:
    wrong = []
    for path, _, field in fields(kind, kind.__name__):
        node = getattr(field.type, "type", field.type)
        right = {inspect.IntType: int, inspect.StrType: str, inspect.BoolType: bool}.get(type(node))
        wrong += [path for value in examples(field) if right is not None and type(value) is not right]
    assert wrong == []


class Inner(Declared, frozen=True):
    low_end: Annotated[int, about("Low.", low=1, high=9)] = 2
    high_end: Annotated[int, about("High.", low=1, high=9)] = 5
    RULES: ClassVar[tuple[ValidationRule, ...]] = (
        ValidationRule(
            "self.lowEnd <= self.highEnd", "lowEnd <= highEnd", unless(lambda it: it.low_end <= it.high_end, "highEnd")
        ),
    )


class Outer(Declared, frozen=True, kw_only=True):
    name: str
    inners: Annotated[tuple[Inner, ...], about("Inners.", longest=2)] = ()
    one: Inner | None = None


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ([], "at: expected an object, got []"),
        ({}, "at.name: is required"),
        ({"name": None}, "at.name: is required"),
        ({"name": 5}, "at.name: expected text, got 5"),
        ({"name": "a", "nmae": "b"}, "at.nmae: unknown field; known here: inners, name, one; did you mean name?"),
        ({"nmae": "b"}, "at.nmae: unknown field; known here: inners, name, one; did you mean name?"),
        ({"other": "b"}, "at.name: is required"),
        ({"name": "a", "inners": "b"}, "at.inners: expected a list, got 'b'"),
        ({"name": "a", "inners": [{}, {}, {}]}, "at.inners: must have 0 to 2 items, got 3"),
        ({"name": "a", "inners": [{}, {"lowEnd": True}]}, "at.inners[1].lowEnd: expected a whole number, got True"),
        ({"name": "a", "inners": [{"lowEnd": 0}]}, "at.inners[0].lowEnd: must be between 1 and 9, got 0"),
        ({"name": "a", "one": {"lowEnd": 6}}, "at.one.highEnd: lowEnd <= highEnd"),
    ],
)
def test_an_error_names_the_path_and_what_would_be_right(value: Any, sentence: str) -> None:
    assert refusal(read, Outer, value, "at") == sentence


def test_every_wrong_field_is_told_at_once() -> None:
    value = {"inners": [{"lowEnd": 0, "highEnd": "b"}, {"lowEnd": 10}], "one": {"lwoEnd": 3}, "other": 1}
    with pytest.raises(FieldError) as raised:
        read(Outer, value, "at")
    assert [error.path for error in raised.value.every] == [
        "at.name",
        "at.inners[0].lowEnd",
        "at.inners[0].highEnd",
        "at.inners[1].lowEnd",
        "at.one.lwoEnd",
        "at.other",
    ]
    assert raised.value is raised.value.every[0]


def test_a_document_that_is_all_wrong_gives_an_answer_of_bounded_length() -> None:
    with pytest.raises(FieldError) as raised:
        read(Outer, {f"n{i}": 1 for i in range(5000)}, "at")
    assert len(raised.value.every) <= 101


def test_what_is_absent_or_null_has_its_default() -> None:
    assert read(Outer, {"name": "a", "inners": None, "one": {"lowEnd": None}}, "") == Outer(name="a", one=Inner())
