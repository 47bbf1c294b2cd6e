"""The kompakt command: collects sub-commands that packages register under the entry-point group `kompakt.commands`.

A package that is not installed just lacks its commands; one whose command cannot be loaded says so when it is called.
"""

import sys
from importlib.metadata import EntryPoint, entry_points
from typing import Final

import typer
from typer.exceptions import TyperException

from kompakt_core.errors import KompaktError

GROUP: Final = "kompakt.commands"


def application() -> typer.Typer:
    """The command line with all sub-commands of the installed packages, by name."""
    app = typer.Typer(
        name="kompakt",
        help="Compact placement and compact activations for GPU training on Kubernetes.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
    )
    app.callback()(lambda: None)  # keeps sub-command names even when only one is installed
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name):
        _add(app, entry)
    return app


def _add(app: typer.Typer, entry: EntryPoint) -> None:
    try:
        command = entry.load()
    except ImportError as error:
        print(f"kompakt: the command {entry.name} is left out: {error}", file=sys.stderr)
        return
    if isinstance(command, typer.Typer):
        app.add_typer(command, name=entry.name)
    else:
        app.command(name=entry.name)(command)


def main() -> None:
    """Run the command line. Whatever the caller got wrong ends it with one sentence and code 2."""
    try:
        code = application()(prog_name="kompakt", standalone_mode=False)
    except (KompaktError, TyperException) as error:
        words = error.format_message() if isinstance(error, TyperException) else str(error)
        if words:  # without any: no command was named and the help is printed already
            print(f"kompakt: {words}", file=sys.stderr)
        sys.exit(2)
    except typer.Abort:
        sys.exit(130)
    sys.exit(code if isinstance(code, int) else 0)
