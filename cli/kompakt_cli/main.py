"""The kompakt command: collects sub-commands that packages register under the entry-point group `kompakt.commands`.

A package that is not installed just lacks its commands; one whose command cannot be loaded says so when it is called.
Only the command that is called is imported: `kompakt --help` must not cost what all commands together need.
"""

import sys
from importlib.metadata import distributions, entry_points
from typing import Annotated

import typer
from typer.exceptions import TyperException

from kompakt_cli.commands import GROUP, Commands, summary
from kompakt_core.errors import KompaktError


def application() -> typer.Typer:
    """The command line with all sub-commands of the installed packages, by name."""
    app = typer.Typer(
        name="kompakt",
        cls=Commands,
        help="Compact placement and compact activations for GPU training on Kubernetes.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,  # rich's help alone takes longer to import than everything else here
    )
    app.callback()(options)  # keeps sub-command names even when only one is installed
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name):
        app.command(name=entry.name, short_help=summary(entry))(lambda: None)
    return app


def _versions(asked: bool) -> None:
    if asked:
        found = {one.metadata["Name"]: one.version for one in distributions() if one.metadata["Name"].startswith("kompakt-")}
        for name, number in sorted(found.items()):
            typer.echo(f"{name} {number}")
        raise typer.Exit


def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_versions, is_eager=True, help="Show the installed packages' versions and exit.")
    ] = False,
) -> None:
    """What stands before a command."""


def _dashes(error: TyperException) -> str:
    """What to do where an option is none of the command's, and the command runs a program that may well have it."""
    context = getattr(error, "ctx", None)
    if context is None or not hasattr(error, "option_name"):
        return ""
    runs = any((parameter.metavar or "").startswith("-- ") for parameter in context.command.params)
    return f"; if it is your program's, put -- before the program: {context.command_path} -- python ..." if runs else ""


def main() -> None:
    """Run the command line. Whatever the caller got wrong ends it with one sentence and code 2."""
    try:
        code = application()(prog_name="kompakt", standalone_mode=False)
    except (KompaktError, TyperException) as error:
        words = error.format_message() + _dashes(error) if isinstance(error, TyperException) else str(error)
        if words.startswith("Usage: "):  # no command was named, which raises with the whole help as its text
            print(words)
        else:
            print(f"kompakt: {words}", file=sys.stderr)
        sys.exit(2)
    except typer.Abort:
        sys.exit(130)
    sys.exit(code if isinstance(code, int) else 0)
