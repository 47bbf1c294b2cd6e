"""Sub-commands by entry point: what each is for is read from its source, so that listing them imports none of them."""

import ast
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import typer
from typer.core import TyperGroup
from typer.main import get_group

from kompakt_core.errors import InvalidInput

GROUP: Final = "kompakt.commands"


class Commands(TyperGroup):
    """Lists commands by their summaries; the one that is called is imported then and takes the place of its summary."""

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        name, listed, rest = super().resolve_command(ctx, args)
        return name, next((built(entry) for entry in entry_points(group=GROUP, name=name or "")), listed), rest


def built(entry: EntryPoint) -> Any:
    """The command of an entry point, a function or an application, ready to parse its arguments.

    Raises:
        InvalidInput: its package is incomplete.
    """
    try:
        command = entry.load()
    except (ImportError, AttributeError) as error:
        raise InvalidInput(f"the command {entry.name} cannot be loaded: {error}") from error
    app = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False)
    app.callback()(lambda: None)  # makes a group of it even when the command is a plain function
    if isinstance(command, typer.Typer):
        app.add_typer(command, name=entry.name)
    else:
        app.command(name=entry.name)(command)
    found = get_group(app).commands[entry.name]
    for below in getattr(found, "commands", {}).values():
        below.short_help = _first_paragraph(below.help or "")  # whole, where typer would cut it to one line
    return found


def summary(entry: EntryPoint) -> str:
    """The first paragraph of the command's help, from its module's source; empty where there is no source to read."""
    path = _source(entry.module)
    if path is None:
        return ""
    found = (_help(node, entry.attr) for node in ast.parse(_statement(path.read_text("utf-8"), entry.attr)).body)
    text = next((text for text in found if text), "")
    return _first_paragraph(text)


def _statement(source: str, name: str) -> str:
    """The definition or assignment of `name` at the top level, alone: to parse whole modules would take ten times as long."""
    lines = source.splitlines()
    begins = (f"def {name}(", f"{name} = ")
    first = next((number for number, line in enumerate(lines) if line.startswith(begins)), len(lines))
    rest = (number for number, line in enumerate(lines[first + 1 :], first + 1) if line[:1] not in ("", " ", ")", "#"))
    return "\n".join(lines[first : next(rest, len(lines))])


def _first_paragraph(text: str) -> str:
    return " ".join(text.partition("\n\n")[0].split())


def _source(module: str) -> Path | None:
    """The module's file. Only the package around it is looked up: finding a module below imports what is above it."""
    package, *below = module.split(".")
    spec = find_spec(package)
    for place in (spec.submodule_search_locations if spec else None) or ():
        path = Path(place, *below).with_suffix(".py")
        if path.is_file():
            return path
    return None


def _help(node: ast.stmt, name: str) -> str | None:
    """The docstring of the function `name`, or the `help` of what is assigned to `name`."""
    if isinstance(node, ast.FunctionDef) and node.name == name:
        return ast.get_docstring(node)
    if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name and isinstance(node.value, ast.Call):
        texts = [word.value for word in node.value.keywords if word.arg == "help"]
        return str(ast.literal_eval(texts[0])) if texts and isinstance(texts[0], ast.Constant) else None
    return None
