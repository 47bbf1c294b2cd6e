"""Breaks paragraphs of prose that have a line above the width; all other lines stay as they are."""

import re
import textwrap
from collections.abc import Iterator
from typing import Final

WIDTH: Final = 130
_ITEM = re.compile(r" *([-*]|\d+\.) ")
# Tables, quotations, headings, code, marks, pictures, and what a merge leaves where two sides differ.
_FIXED = ("|", ">", "#", "```", "<!--", "![", "<<<<<<<", "=======")
_CODE = re.compile(r"`[^`]+`")
_SPACE = "\0"


def wrapped(page: str) -> str:
    """The page with each too long paragraph broken anew. Code in backticks stays on one line."""
    return "\n".join(line for prose, part in _parts(page) for line in (_broken(part) if prose else part)) + "\n" * page.endswith(
        "\n"
    )


def _broken(part: list[str]) -> list[str]:
    if all(len(line) <= WIDTH for line in part):
        return part
    item = _ITEM.match(part[0])
    first = item[0] if item else ""
    text = " ".join(line.strip() for line in part).removeprefix(first.strip())
    kept = _CODE.sub(lambda code: code[0].replace(" ", _SPACE), text.strip())
    lines = textwrap.wrap(
        kept, WIDTH, initial_indent=first, subsequent_indent=" " * len(first), break_long_words=False, break_on_hyphens=False
    )
    return [line.replace(_SPACE, " ") for line in lines]


def _parts(page: str) -> Iterator[tuple[bool, list[str]]]:
    """Paragraphs and items as lists of lines; every other line, those of code blocks too, by itself and as no prose."""
    fenced, part = False, list[str]()
    for line in page.splitlines():
        prose = not fenced and _is_prose(line)
        if part and (not prose or _ITEM.match(line)):
            yield True, part
            part = []
        fenced ^= line.lstrip().startswith("```")
        if prose:
            part.append(line)
        else:
            yield False, [line]
    if part:
        yield True, part


def _is_prose(line: str) -> bool:
    return bool(line.strip()) and not line.lstrip().startswith(_FIXED) and not line.startswith("    ")
