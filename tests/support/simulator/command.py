"""`kompakt simulate` as a person calls it."""

import typer
from typer.testing import CliRunner, Result

from kompakt_simulator.command import simulate

APP = typer.Typer()
APP.command()(simulate)


def call(*arguments: str) -> Result:
    return CliRunner().invoke(APP, arguments, env={"COLUMNS": "160"})
