"""The index of docs/decisions, and what each decision's first lines must be."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tools.docs.repository import tracked

FOLDER: Final = "docs/decisions"
INDEX: Final = f"{FOLDER}/README.md"
_TITLE = re.compile(r"# (\d{4}): (.+)")
_STATUS = re.compile(r"Status: (?:Accepted|(?:Amended|Superseded) by \d{4}(?:, \d{4})*)")
_FORM: Final = "'Status: Accepted', 'Status: Amended by 0123, 0456' or 'Status: Superseded by 0123'"
_HEAD: Final = """# Decisions

Choices that a later reader would question: what was decided, why, and what else was considered. Numbers run by
subject; a number that is missing here was never used. A decision that no longer holds stays, with the number of the one
that replaced it.

- **Accepted**: it holds as written.
- **Amended by**: it holds but for what the later decision changes; read both.
- **Superseded by**: it no longer holds; read the later decision.

New ones are 10 to 30 lines: the title is `# 0123: What was decided`, the third line is the status. Amend before you
add. `make docs` writes this table anew.

"""


@dataclass(frozen=True, slots=True)
class DecisionPage:
    """The first lines of one file; number, title and status are empty where they cannot be read."""

    path: str
    number: str
    title: str
    status: str

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]


def decisions(root: Path) -> list[DecisionPage]:
    """All decisions by number."""
    paths = [path for path in tracked(root, f"{FOLDER}/*.md") if path != INDEX]
    return [_read(root, path) for path in paths]


def decision_index(root: Path) -> str:
    """The whole index page."""
    every = decisions(root)
    names = {decision.number: decision.name for decision in every}
    rows = [f"| [{one.number}]({one.name}) | {one.title} | {_linked(one.status, names)} |" for one in every]
    return _HEAD + "\n".join(["| number | decision | status |", "|---|---|---|", *rows]) + "\n"


def decision_pages(root: Path) -> dict[str, str]:
    """The index, and each decision that has no status yet with the one that a new decision has."""
    texts = {one.path: (root / one.path).read_text() for one in decisions(root) if not one.status.startswith("Status:")}
    return {INDEX: decision_index(root)} | {path: with_status(text) for path, text in texts.items()}


def with_status(text: str) -> str:
    """The decision as accepted, its title in the one form."""
    title, _, rest = text.partition("\n")
    return re.sub(r"^# (\d{4}):? ", r"# \1: ", title) + "\n\nStatus: Accepted\n\n" + rest.lstrip("\n")


def decision_problems(root: Path) -> list[str]:
    """Files whose title or status is not of the form, numbers given twice, and statuses that name no later decision."""
    every = decisions(root)
    known = {decision.number for decision in every}
    return [problem for one in every for problem in _problems(one, every, known)]


def _problems(one: DecisionPage, every: list[DecisionPage], known: set[str]) -> list[str]:
    found = []
    if not one.number or not one.name.startswith(one.number):
        found.append(f"the first line must be '# {one.name[:4]}: What was decided'")
    if not _STATUS.fullmatch(one.status):
        found.append(f"the third line must be {_FORM}")
    if [other.number for other in every].count(one.number) > 1 and one.number:
        found.append(f"the number {one.number} is given twice")
    later = re.findall(r"\d{4}", one.status)
    found += [f"the status names {number}, which does not exist" for number in later if number not in known]
    return [f"{one.path}: {problem}" for problem in found]


def _read(root: Path, path: str) -> DecisionPage:
    lines = [*(root / path).read_text().split("\n"), "", "", ""]
    title = _TITLE.fullmatch(lines[0])
    number, words = (title[1], title[2]) if title else ("", "")
    return DecisionPage(path, number, words, lines[2] if not lines[1] else "")


def _linked(status: str, names: dict[str, str]) -> str:
    """The status as the index shows it: each number is a link."""
    shown = status.removeprefix("Status: ")
    return re.sub(r"\d{4}", lambda number: f"[{number[0]}]({names.get(number[0], '')})", shown)
