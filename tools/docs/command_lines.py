"""docs/reference/cli.md: every command and option of `kompakt`, `kompakt-run` and the programs of the cluster, as their help has
them."""

import argparse
import re
from collections.abc import Iterable, Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Final

from kompakt_cli.commands import GROUP, built
from tools.docs.rooms import cell

PAGE: Final = "docs/reference/cli.md"
_HEAD: Final = """# Command line

<!-- Made by `make docs` from what the programs declare; do not edit. -->

Every command and option, as `--help` shows them. Each command tells its own by `kompakt COMMAND --help`; `kompakt --version`
shows the installed packages' versions. Where a command does not say otherwise, exit code 0 means that it did what it was asked to
do. Exit code 2 means that its input was wrong, which one sentence on standard error explains.
"""
_PROGRAMS: Final = """## Programs

The runtime's own command, and what the containers of the chart run.
"""
_WORD: Final = re.compile(r"(?<!\w)--\w[\w-]*|[^\s,;()\"\[\]]*[*<_][^\s,;()\"\[\]]*")
_TABLE: Final = "| option | meaning |\n|---|---|"


def command_pages(root: Path) -> dict[str, str]:
    """The whole page."""
    entries = sorted(entry_points(group=GROUP), key=lambda entry: entry.name)
    commands = [text for entry in entries for text in _command(built(entry), f"kompakt {entry.name}", 2)]
    return {PAGE: "\n".join([_HEAD, *commands, _PROGRAMS, *(_program(one) for one in _parsers())])}


def _command(command: Any, path: str, level: int) -> Iterator[str]:
    """A command and those below it."""
    context = command.make_context(path, ["--help"], resilient_parsing=True)
    below = getattr(command, "commands", {})
    rows = [one.get_help_record(context) for one in command.get_params(context)]
    yield _section(level, path, command.help or "", [] if below else [row for row in rows if row and row[0] != "--help"])
    for name, inner in below.items():
        yield from _command(inner, f"{path} {name}", level + 1)


def _parsers() -> list[argparse.ArgumentParser]:
    from kompakt_device_plugin.main import parser as device_plugin
    from kompakt_extender.command_line import parser as extender
    from kompakt_operator.config import parser as operator
    from kompakt_runtime.launch.kompakt_run import parser as runtime

    return [runtime(), operator({}), extender(), device_plugin()]


def _program(parser: argparse.ArgumentParser) -> str:
    rows = [(_named(action), _told(action)) for action in parser._actions[1:]]
    return _section(3, parser.prog, f"{parser.description or ''}\n\n{parser.epilog or ''}", rows)


def _named(action: argparse.Action) -> str:
    takes = ",".join(map(str, action.choices)) if action.choices else action.metavar or ""
    return " ".join(filter(None, [", ".join(action.option_strings), f"{{{takes}}}" if action.choices else str(takes)]))


def _told(action: argparse.Action) -> str:
    """Its help, with a default that the help does not name."""
    text = ((action.help or "") % vars(action)).replace(" (default: )", "")
    plain = "default" in text or action.default in (None, "", False) or not isinstance(action.default, str | int)
    return text if plain else f"{text} (default: {action.default})".strip()


def _section(level: int, title: str, text: str, rows: Iterable[tuple[str, str]]) -> str:
    words = "\n\n".join(" ".join(part.split()) for part in re.split(r"\n\s*\n", text.strip()))
    table = [_TABLE, *(f"| `{cell(names)}` | {cell(_escaped(meaning.strip()))} |" for names, meaning in rows)]
    return "\n".join([f"{'#' * level} {title}", "", _escaped(words), "", *([*table, ""] if len(table) > 1 else [])])


def _escaped(text: str) -> str:
    """As plain text in Markdown: options, head.*, <name> and NODE_NAME go into backticks, unless they stand in some."""
    return "".join(part if part.startswith("`") else _WORD.sub(r"`\g<0>`", part) for part in re.split(r"(`[^`]*`)", text))
