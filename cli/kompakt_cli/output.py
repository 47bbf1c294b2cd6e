"""Answers of the explain API for people: rich text, or JSON as it came."""

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any, Final

import typer
from rich.console import Console, RenderableType
from rich.table import Table

from kompakt_cli.words import gigabytes
from kompakt_core import contract

Answer = Mapping[str, Any]


class OutputFormat(StrEnum):
    """How an answer is printed."""

    TEXT = "text"
    NAME = "name"
    WIDE = "wide"
    YAML = "yaml"
    JSON = "json"


Output = Annotated[OutputFormat, typer.Option("-o", "--output", help="text, name, wide, yaml or json", case_sensitive=False)]
PIPE_COLUMNS: Final = 1000
JOB_RESOURCE: Final = f"{contract.JOB_KIND.lower()}.{contract.GROUP}"  # as kubectl names it
GANG_RESOURCE: Final = f"{contract.GANG_KIND.lower()}.{contract.GROUP}"


def show(answer: Answer, output: OutputFormat, render: Iterable[RenderableType], names: Iterable[str] = ()) -> None:
    """Print an answer: `render` for people, `names` (such as node/a) for the format name, else the answer itself."""
    console = screen()
    if output in (OutputFormat.YAML, OutputFormat.JSON):
        console.out(document_text(answer, output), highlight=False)
    elif output is OutputFormat.NAME:
        for name in names:
            console.out(name, highlight=False)
    else:
        printed(console, render)


def printed(console: Console, parts: Iterable[RenderableType]) -> None:
    """For people on a terminal; elsewhere without the spaces that fill the lines of a table."""
    if console.is_terminal:
        for part in parts:
            console.print(part, highlight=False)
        return
    with console.capture() as whole:
        for part in parts:
            console.print(part, highlight=False)
    for line in whole.get().splitlines():
        typer.echo(line.rstrip())


def screen() -> Console:
    """Where answers are printed. A pipe or file gets whole lines: `grep` would look in vain for a name that was cut short."""
    console = Console()
    return console if console.is_terminal or "COLUMNS" in os.environ else Console(width=PIPE_COLUMNS)


def document_text(document: Any, output: OutputFormat) -> str:
    """JSON or YAML, keys in the order in which they come."""
    if output is OutputFormat.JSON:
        return json.dumps(document, indent=2)
    import yaml  # 0.02 s

    return str(yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=1000)).rstrip("\n")


def facts(*pairs: tuple[str, str]) -> Table:
    """Names and what is known under them; pairs without a text are left out."""
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    for name, text in pairs:
        if text:
            table.add_row(name, text)
    return table


def columns(*names: str, right: Sequence[str] = ()) -> Table:
    """An empty table in the manner of kubectl."""
    table = Table(box=None, pad_edge=False)
    for name in names:
        table.add_column(name.upper(), justify="right" if name in right else "left", no_wrap=name != "why")
    return table


def rejections(answer: Answer) -> list[RenderableType]:
    """Why nodes cannot take a request, by reason; nothing where all can."""
    found = answer["rejections"] if "rejections" in answer else answer["refusals"]  # as an older extender calls them
    if not found:
        return []
    table = columns("refused by", "reason", "why", "for example", right=["refused by"])
    for one in found:
        table.add_row(str(one["nodes"]), one["reason"], one["message"], ", ".join(one["examples"]))
    return [table]


def standings(answer: Answer) -> list[RenderableType]:
    """How nodes stand to a request: what each of the nearest has, and why others cannot take it, by reason."""
    found = answer.get("rooms") or []  # an older extender lists none
    return [*([_rooms(found)] if found else []), *rejections(answer)]


def _rooms(found: list[Answer]) -> Table:
    """Where nodes have racks and blocks these are shown: a job may have to keep to one."""
    places = [name for name in ("block", "rack") if any(one[name] for one in found)]
    table = columns("node", *places, "free", "takes", "why", right=["free", "takes"])
    for one in found:
        table.add_row(one["node"], *(one[name] or "-" for name in places), str(one["free"]), str(one["takes"]), one["message"])
    return table


def gpus(indices: Sequence[int]) -> str:
    """GPU indices with ranges, in order: 0,1,2,5 -> 0-2,5; a set that runs otherwise is written as it runs."""
    if list(indices) != sorted(indices):
        return ",".join(map(str, indices))
    parts: list[list[int]] = []
    for index in indices:
        if parts and index == parts[-1][-1] + 1:
            parts[-1].append(index)
        else:
            parts.append([index])
    return ",".join(str(p[0]) if len(p) == 1 else f"{p[0]}-{p[-1]}" if len(p) > 2 else f"{p[0]},{p[1]}" for p in parts) or "none"


def worth(value: int, ideal: int | None) -> str:
    """A value beside its ideal."""
    share = f" ({value / ideal:.0%} of the best on an empty node, {gigabytes(ideal)})" if ideal else ""
    return f"{gigabytes(value)} GB/s{share}"


def request_text(asked: Answer) -> str:
    """A request in words."""
    extras = [
        "" if asked["requiredLink"] == "Any" else f"over {asked['requiredLink']} only",
        "on one NUMA node" if asked["sameNUMANode"] else "",
    ]
    feeling = "sensitive" if asked["sensitive"] else "insensitive"
    pattern = f"pattern {asked['pattern']}" + (f" {asked['edges']}" if asked.get("edges") else "")
    words = [f"{asked['gpus']} GPUs" if asked["gpus"] != 1 else "1 GPU", pattern]
    return ", ".join([*words, f"policy {asked['policy']}, {feeling}", *filter(None, extras)])
