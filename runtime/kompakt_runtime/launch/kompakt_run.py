"""The console script `kompakt-run`: needs the standard library only, and torch in the program that it runs."""

import argparse
import sys
from collections.abc import Sequence

from kompakt_runtime.launch.options import OPTIONS, Option

DESCRIPTION = "Run a training program with compressed activations and show what was saved, by layer."
EPILOG = "The exit code is the program's; 3 if it was 0 and --verify found a difference that was not allowed."


def main(words: Sequence[str] | None = None) -> int:
    """words: of the command line. The exit code."""
    known = parser()
    values = vars(known.parse_args(words))
    program = values.pop("program")
    from kompakt_runtime.launch.run import BadCommand, run  # not for --help

    try:
        return run(program[1:] if program[:1] == ["--"] else program, values)
    except BadCommand as error:
        known.error(str(error))


def parser() -> argparse.ArgumentParser:
    """Options come first; the first other word begins the program."""
    made = argparse.ArgumentParser(
        "kompakt-run", "%(prog)s [options] -- PROGRAM [ARGUMENTS]", DESCRIPTION, EPILOG, allow_abbrev=False
    )
    for option in OPTIONS:
        _add(made, option)
    made.add_argument("program", nargs=argparse.REMAINDER, metavar="-- PROGRAM [ARGUMENTS]", help="what to run")
    return made


def _add(made: argparse.ArgumentParser, option: Option) -> None:
    text = option.help.replace("%", "%%")
    if option.flag:
        made.add_argument(option.name, action="store_true", help=text)
    else:
        made.add_argument(option.name, default=option.default, metavar="VALUE", help=f"{text} (default: %(default)s)")


if __name__ == "__main__":
    sys.exit(main())
