"""docs/reference: one page per resource, made of its declared fields."""

from collections.abc import Iterator
from dataclasses import dataclass
from textwrap import fill
from typing import Any, Final

from msgspec import inspect

from kompakt_core.schema.meta import Declared, ValidationRule
from tools.crd.structural import Schema, field_schema, opened, shown

WIDTH: Final = 130
MADE: Final = "<!-- Made by `python -m tools.crd`; do not edit. -->"
HEAD: Final = ("| field | type | default | what it does |", "|---|---|---|---|")
REFUSED: Final = "The API server refuses an object that breaks one of these rules, and shows the rule:"
TYPES: Final = {"boolean": "true or false", "string": "text", "integer": "integer"}


@dataclass(frozen=True, slots=True)
class ResourcePage:
    """What a page is made of: names and columns as in the CRD, and the declarations of spec and status."""

    what: str
    names: Schema
    scope: str
    columns: list[Schema]
    parts: dict[str, tuple[str, type[Declared]]]
    more: str


def page(resource: ResourcePage) -> str:
    """The page's text."""
    lines = [f"# {resource.names['kind']}: all fields", "", MADE, "", fill(resource.what, WIDTH), ""]
    lines += [fill(f"{_called(resource)} {resource.more}", WIDTH, break_long_words=False, break_on_hyphens=False), ""]
    for part, (what, kind) in resource.parts.items():
        lines += [f"## {part}", "", what, ""]
        for path, node in _objects(part, kind):
            lines += _table(path, node) if path == part else [f"### {path}", "", *_table(path, node)]
    return "\n".join(lines).rstrip() + "\n"


def _called(resource: ResourcePage) -> str:
    names, shown_always = resource.names, [one["name"] for one in resource.columns if not one.get("priority")]
    wide = [one["name"] for one in resource.columns if one.get("priority")]
    more = f"; with `-o wide` also {', '.join(wide)}" if wide else ""
    scope = "Lives in a namespace." if resource.scope == "Namespaced" else "Belongs to no namespace."
    return (
        f"{scope} `kubectl get {names['plural']}`, in short `kubectl get {names['shortNames'][0]}`, shows "
        f"{', '.join(shown_always)}{more}. The same text: `kubectl explain {names['singular']}.spec`."
    )


def _objects(path: str, kind: Any) -> Iterator[tuple[str, inspect.StructType]]:
    """An object and all objects inside, with their paths."""
    node = inspect.type_info(kind)
    assert isinstance(node, inspect.StructType)
    yield path, node
    for field in node.fields:
        inner = opened(field.type)[0]
        items = isinstance(inner, inspect.VarTupleType)
        inner = opened(inner.item_type)[0] if isinstance(inner, inspect.VarTupleType) else inner
        if isinstance(inner, inspect.StructType):
            yield from _objects(f"{path}.{field.encode_name}{'[]' if items else ''}", inner.cls)


def _table(path: str, node: inspect.StructType) -> list[str]:
    kind: Any = node.cls
    rules = [f"- {rule.sentence}" for rule in _rules(node)]
    return [*HEAD, *(_row(path, field, kind.FILLED) for field in node.fields), "", *([REFUSED, "", *rules, ""] if rules else [])]


def _rules(node: inspect.StructType) -> list[ValidationRule]:
    """Those of the object and of its fields."""
    kind: Any = node.cls
    return [*kind.RULES, *(rule for field in node.fields for rule in opened(field.type)[1].get("rules", ()))]


def _row(path: str, field: inspect.Field, filled: bool) -> str:
    _, extra, more = opened(field.type)
    schema = field_schema(field, filled=filled)
    told = [more["description"].replace("<", "&lt;")]
    told += [f"Unit: {extra['unit']}."] if "unit" in extra else []
    told += [f"Example: `{shown(example)}`" for example in more.get("examples", [])]
    default = "required" if field.required else f"`{shown(schema['default'])}`" if "default" in schema else ""
    cells = [f"`{field.encode_name}`", _type(path, field, schema), default, " ".join(told)]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _type(path: str, field: inspect.Field, schema: Schema) -> str:
    if schema.get("items", {}).get("properties") or schema.get("properties"):
        items = "[]" if "items" in schema else ""
        at = f"{path}.{field.encode_name}{items}"
        return f"[{'list of objects' if items else 'object'}](#{_anchor(at)}){_counted(schema)}"
    if "items" in schema:
        return f"list of {_scalar(schema['items'])}{_counted(schema)}"
    if "additionalProperties" in schema:
        return f"map of text to {_scalar(schema['additionalProperties'])}"
    return _scalar(schema)


def _scalar(schema: Schema) -> str:
    if "x-kubernetes-int-or-string" in schema:
        return "quantity"
    if "enum" in schema:
        return ", ".join(f"`{word}`" for word in schema["enum"])
    if schema.get("format") == "date-time":
        return "time (RFC 3339)"
    low, high = schema.get("minimum"), schema.get("maximum")
    bounds = "" if low is None else f" from {low}" if high is None else f" from {low} to {high}"
    longest = f", at most {schema['maxLength']} characters" if "maxLength" in schema else ""
    return TYPES.get(schema.get("type", ""), "object") + bounds + longest


def _counted(schema: Schema) -> str:
    low, high = schema.get("minItems"), schema.get("maxItems")
    return "" if high is None else f", at most {high}" if low is None else f", {low} to {high}"


def _anchor(heading: str) -> str:
    """As code forges make it: lower case, letters, digits and dashes only."""
    return "".join(letter for letter in heading.lower() if letter.isalnum() or letter in "-_")
