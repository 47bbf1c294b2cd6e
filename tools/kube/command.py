"""Run a program and say what it said when it fails."""

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

Words = Sequence[str | Path]
"""A program and its arguments."""


class CommandFailed(RuntimeError):
    """A program ended with an error; the text holds its name and the end of what it printed."""


def output(argv: Words, *, stdin: str | None = None, env: Mapping[str, str] | None = None) -> str:
    """Standard output of a program that must succeed.

    Raises:
        CommandFailed: it ended with a status other than 0 (text: the command and its last lines).
    """
    words = [str(word) for word in argv]
    done = subprocess.run(words, input=stdin, env=env, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        last = "\n".join((done.stdout + done.stderr).strip().splitlines()[-15:])
        raise CommandFailed(f"{' '.join(words)} ended with {done.returncode}:\n{last}")
    return done.stdout


def logged(argv: Words, log: Path, *, env: Mapping[str, str] | None = None) -> None:
    """Run a long program with its output in a file that can be followed meanwhile.

    Raises:
        CommandFailed: it ended with a status other than 0 (text: the command, the log's path and its last lines).
    """
    words = [str(word) for word in argv]
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a") as file:
        done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT, env=env, check=False)
    if done.returncode != 0:
        last = "\n".join(log.read_text(errors="replace").strip().splitlines()[-15:])
        raise CommandFailed(f"{' '.join(words)} ended with {done.returncode} (log: {log}):\n{last}")
