"""`kompakt run -- python train.py`: the options of `kompakt-run` as a command of the kompakt command line (typer)."""

import inspect
from typing import Annotated, Any

import typer

from kompakt_runtime.launch.options import OPTIONS, Option
from kompakt_runtime.launch.run import BadCommand
from kompakt_runtime.launch.run import run as run_program


def run(program: list[str], **values: Any) -> None:
    """Run a training program with compressed activations and show what was saved, by layer.

    The exit code is the program's; 3 if it was 0 and --verify found a difference that was not allowed.
    """
    try:
        code = run_program(program, values)
    except BadCommand as error:
        raise typer.BadParameter(str(error)) from error
    raise typer.Exit(code)


def _parameter(option: Option) -> inspect.Parameter:
    """As typer reads it from a function's signature. Spelled out, a flag has no `--no-` form."""
    typed = typer.Option(option.name, help=option.help)
    annotation: Any = Annotated[bool, typed] if option.flag else Annotated[str, typed]
    default = False if option.flag else option.default
    return inspect.Parameter(option.key, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _program() -> inspect.Parameter:
    argument = typer.Argument(help="what to run, after `--`", metavar="-- PROGRAM [ARGUMENTS]")
    return inspect.Parameter("program", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=Annotated[list[str], argument])


run.__signature__ = inspect.Signature([_program(), *map(_parameter, OPTIONS)])  # type: ignore[attr-defined]
