"""`python -m tools.docs.shown [PAGE...]`: runs what pages show as `$ command` in `console` blocks and compares what it prints.

A line `...` in a page stands for any lines. What needs a cluster, a training or a file that is not in the checkout is told as not
run. Commands of a page run one after the other in a folder of their own that shows the checkout's files; a file that is not there
is made of what `$ cat FILE` shows."""

import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

from tools.docs.blocks import ELISION, CodeBlock, code_blocks
from tools.docs.repository import ROOT

COLUMNS: Final = "120"
SECONDS: Final = 240
HARMLESS: Final = ("kompakt", "kompakt-run", "pip", "echo", "cat", "head", "tail", "grep", "sed")
NOT_RUN: Final = {
    "explain": "needs a cluster",
    "what-if": "needs a cluster",
    "submit": "needs a cluster",
    "logs": "needs a cluster",
    "top": "needs a cluster",
    "doctor": "tells of the machine that it runs on",
    "run": "trains",
    "profile": "trains",
    "tour": "takes a minute",
}
_FILE: Final = re.compile(r"[\w./-]+\.(?:yaml|yml|json|csv|txt|py|gz|svg|html)")


@dataclass(frozen=True, slots=True)
class ShownCommand:
    """A command of a page with the lines that the page shows below it."""

    page: str
    line: int
    command: str
    printed: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.page}:{self.line}: $ {self.command}"


@dataclass(frozen=True, slots=True)
class ShownResult:
    """`reason`: why it was not run; `problem`: how what it printed differs. Both empty: the page is right."""

    shown: ShownCommand
    reason: str = ""
    problem: str = ""

    def __str__(self) -> str:
        said = f"not run: {self.reason}" if self.reason else self.problem or "as shown"
        return f"{self.shown}\n    {said}"


def shown_commands(root: Path) -> dict[str, list[ShownCommand]]:
    """All commands by page, in the page's order."""
    found: dict[str, list[ShownCommand]] = {}
    for block in code_blocks(root):
        if block.language == "console":
            found.setdefault(block.page, []).extend(commands_of(block))
    return {page: commands for page, commands in found.items() if commands}


def commands_of(block: CodeBlock) -> Iterator[ShownCommand]:
    """The commands of one block; one that ends with a backslash goes on in the next line."""
    lines = re.sub(r"\\\n", "\0", block.text).splitlines()
    starts = [number for number, line in enumerate(lines) if line.startswith("$ ")]
    for start, end in pairwise([*starts, len(lines)]):
        before = sum(1 + line.count("\0") for line in lines[:start])
        command = lines[start].removeprefix("$ ").replace("\0", "\\\n")
        yield ShownCommand(block.page, block.line + 1 + before, command, tuple(lines[start + 1 : end]))


def why_not(command: str, folder: Path) -> str:
    """Why a command is not run by this check; empty: it is."""
    words = shlex.split(command, comments=True)
    starts = [0, *(number + 1 for number, word in enumerate(words) if word in ("|", "&&", "||") or word.endswith(";"))]
    programs = [words[start] for start in starts if start < len(words)]
    if foreign := [program for program in programs if program not in HARMLESS]:
        return f"starts {foreign[0]}"
    if words[0] == "pip" and not all(word.startswith("./docs/") for word in words[2:]):
        return "installs into the environment"
    if "--help" in words:
        return ""
    if words[0] == "kompakt-run" or (words[0] == "kompakt" and words[1:2] and words[1] in NOT_RUN):
        return "trains" if words[0] == "kompakt-run" else NOT_RUN[words[1]]
    written = {after for before, after in pairwise(words) if before == ">"}
    missing = [word for word in words if _FILE.fullmatch(word) and word not in written and not (folder / word).exists()]
    return f"needs {missing[0]}" if missing else ""


def run_page(root: Path, commands: Sequence[ShownCommand]) -> list[ShownResult]:
    """All commands of one page in a new folder, so that what one writes another may read."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "checkout"
        folder.mkdir()
        for entry in root.iterdir():
            (folder / entry.name).symlink_to(entry)
        return [_run(one, folder, _environment(Path(place) / "packages")) for one in commands]


def _environment(packages: Path) -> dict[str, str]:
    """As after `make sync`; what pip installs goes to a folder that goes away, from no package index."""
    pip = {"PIP_TARGET": str(packages), "PIP_NO_INDEX": "1", "PIP_NO_DEPS": "1", "PIP_NO_BUILD_ISOLATION": "0"}
    quiet = {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "COLUMNS": COLUMNS, "PYTHONPATH": str(packages)}
    return {**os.environ, **pip, **quiet, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}


def _run(shown: ShownCommand, folder: Path, environment: dict[str, str]) -> ShownResult:
    words = shown.command.split()
    if words[0] == "cat" and len(words) == 2 and shown.printed and not (folder / words[1]).exists():
        (folder / words[1]).write_text("\n".join(shown.printed) + "\n")
        return ShownResult(shown)
    if reason := why_not(shown.command, folder):
        return ShownResult(shown, reason=reason)
    command = ["bash", "-c", shown.command]
    merged = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    done = subprocess.run(command, cwd=folder, env=environment, text=True, check=False, timeout=SECONDS, **merged)  # type: ignore[call-overload]
    return ShownResult(shown, problem=difference(shown.printed, done.stdout, done.returncode))


def difference(shown: Sequence[str], printed: str, code: int) -> str:
    """How output differs from the page, in lines; where a page shows none, the command must succeed."""
    wanted = [line.rstrip() for line in shown if line.strip()]
    lines = [line.rstrip() for line in printed.splitlines() if line.strip()]
    if not wanted:
        return f"exit code {code}: {printed.strip()[-400:]}" if code else ""
    return "" if _matches(wanted, lines) else "\n    ".join(["prints now:", *lines])


def _matches(wanted: list[str], lines: list[str]) -> bool:
    """Each part between two elisions stands in the output, after the part before; the ends stand at its ends."""
    pattern = "".join(r"(?:.*\n)*?" if line == ELISION else f"{re.escape(line)}\\n" for line in wanted)
    return re.fullmatch(pattern, "".join(f"{line}\n" for line in lines)) is not None


def main(pages: Sequence[str]) -> int:
    """pages: all without any. The exit code is 1 where a page is stale."""
    known = shown_commands(ROOT)
    results = [result for page in pages or known for result in run_page(ROOT, known.get(page, ()))]
    print("\n".join(map(str, results)))
    stale, left = (sum(bool(one) for one in each) for each in zip(*((r.problem, r.reason) for r in results), strict=True))
    print(f"{len(results) - stale - left} as shown, {stale} stale, {left} not run")
    return int(stale > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
