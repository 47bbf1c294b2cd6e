"""docs/reference/chart-values.md: every value of the chart, from the comments in values.yaml and the types in its schema."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from tools.docs.rooms import cell

PAGE: Final = "docs/reference/chart-values.md"
VALUES: Final = "charts/kompakt/values.yaml"
SCHEMA: Final = "charts/kompakt/values.schema.json"
_HEAD: Final = f"""# Values of the chart

<!-- Made by `make docs` from {VALUES} and {SCHEMA}; do not edit. -->

What `helm install` and `helm upgrade` take by `--set` or `--values`. The chart refuses a name that is not here, and a value of
another type. [Install](../install.md) and [operations](../operations.md) show how values are used.
"""
_TABLE: Final = "| value | type | default | meaning |\n|---|---|---|---|"
_WORDS: Final = {"string": "text", "boolean": "true or false", "integer": "whole number", "object": "object", "array": "list"}
_COMMENT: Final = re.compile(r"(?:^|\s)#\s?(.*)")


@dataclass(frozen=True, slots=True)
class ChartValue:
    """One value: its path, its default (of an object with values of its own: none), its schema and what its comment says."""

    path: str
    default: Any
    schema: Mapping[str, Any]
    meaning: str
    inner: bool = False


@dataclass(slots=True)
class _Comments:
    """What stands beside and above each line, by the line's number."""

    beside: dict[int, list[str]] = field(default_factory=dict)
    above: dict[int, list[str]] = field(default_factory=dict)


def chart_pages(root: Path) -> dict[str, str]:
    """The whole page: first the values that stand alone, then a table for each object."""
    values = chart_values((root / VALUES).read_text(), json.loads((root / SCHEMA).read_text()))
    alone = [one for one in values if "." not in one.path and not one.inner]
    parts = [_section(one, [two for two in values if two.path.startswith(f"{one.path}.")]) for one in values if _opens(one)]
    return {PAGE: "\n".join([_HEAD, "## Values of the whole chart", "", _TABLE, *map(_row, alone), "", *parts])}


def chart_problems(root: Path) -> list[str]:
    """Values whose comment says nothing."""
    values = chart_values((root / VALUES).read_text(), json.loads((root / SCHEMA).read_text()))
    silent = [one.path for one in values if not one.meaning and not one.inner and not _told_by_parent(one, values)]
    return [f"{VALUES}: {path} has no comment that says what it is for" for path in silent]


def chart_values(text: str, schema: Mapping[str, Any]) -> list[ChartValue]:
    """All values in the file's order; an object comes before its own values."""
    node = yaml.compose(text, yaml.SafeLoader)
    return list(_walk(node, yaml.safe_load(text), schema, schema.get("definitions", {}), "", _comments(text.splitlines())))


def _walk(node: Any, given: Any, schema: Any, known: Any, above: str, comments: _Comments) -> Iterator[ChartValue]:
    for key, value in node.value:
        own = schema["properties"][key.value]
        own = known[own["$ref"].rpartition("/")[2]] if "$ref" in own else own
        line, path = key.start_mark.line, f"{above}{key.value}"
        inner = isinstance(given[key.value], dict) and bool(own.get("properties")) and "title" not in own
        said = " ".join([*comments.above.get(line, []), *comments.beside.get(line, [])])
        yield ChartValue(path, given[key.value], own, said, inner and bool(value.value))
        if inner:
            yield from _walk(value, given[key.value], own, known, f"{path}.", comments)


def _comments(lines: list[str]) -> _Comments:
    """A comment of a line's own belongs to the value below it, unless it goes on below a comment beside a value."""
    found, waiting, last, column = _Comments(), list[str](), -1, -1
    for number, line in enumerate(lines):
        comment = _COMMENT.search(line)
        at = line.index("#", comment.start()) if comment else -1
        whole = comment is not None and not line[:at].strip()
        if comment and whole and at == column:
            found.beside[last].append(comment[1].strip())
        elif comment and whole:
            waiting.append(comment[1].strip())
        else:
            if line.strip():
                found.above[number], found.beside[number] = waiting, [comment[1].strip()] if comment else []
            waiting, last, column = [], number, at
    return found


def _opens(one: ChartValue) -> bool:
    return one.inner and "." not in one.path


def _told_by_parent(one: ChartValue, values: list[ChartValue]) -> bool:
    """What lies inside an object with a comment below the first level, such as waitSeconds.rack, needs none of its own."""
    parent = one.path.rpartition(".")[0]
    return any(two.path == parent and two.meaning for two in values)


def _section(top: ChartValue, values: list[ChartValue]) -> str:
    first = [_said(top), ""] if top.meaning else []
    return "\n".join([f"## {top.path}", "", *first, _TABLE, *map(_row, values), ""])


def _row(one: ChartValue) -> str:
    default = "" if one.inner else f"`{_shown(one.default)}`"
    return f"| `{one.path}` | {cell(_type(one.schema))} | {cell(default)} | {cell(_said(one))} |"


def _said(one: ChartValue) -> str:
    """The comment as Markdown: pages that it names are links."""
    return re.sub(r"docs/([\w-]+)\.md", r"[\1](../\1.md)", one.meaning.replace("<", "&lt;"))


def _shown(value: Any) -> str:
    """As YAML on one line."""
    flow = yaml.safe_dump(value, default_flow_style=True, width=10000, sort_keys=False)
    return flow.removesuffix("\n").removesuffix("\n...") if value != "" else '""'


def _type(schema: Mapping[str, Any]) -> str:
    if "title" in schema:
        return str(schema["title"])
    if "enum" in schema:
        return ", ".join(f"`{word}`" for word in schema["enum"])
    if schema["type"] == "array":
        return f"list of {_WORDS[schema.get('items', {}).get('type', 'object')]}s".replace("texts", "text")
    low, high = schema.get("minimum"), schema.get("maximum")
    bounds = "" if low is None else f" from {low}" if high is None else f" from {low} to {high}"
    return _WORDS[schema["type"]] + bounds
