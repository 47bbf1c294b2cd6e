"""The part of each room's README that is made from its code: drawings and one table row per module."""

from collections.abc import Sequence
from pathlib import Path

from tools.docs.drawing import drawings
from tools.docs.modules import Module, read_module
from tools.docs.repository import ROOMS, modules_of

BEGIN, END = "<!-- modules -->", "<!-- /modules -->"
_NOTE = "Made by `make docs` from the code. A higher layer imports only from lower ones; `a = b` import each other."


def room_pages(root: Path) -> dict[str, str]:
    """What each room's README should be."""
    return {f"{room}/README.md": _page(root, room) for room in ROOMS}


def room_problems(root: Path) -> list[str]:
    """Modules without a docstring, which the tables could say nothing about."""
    modules = [read_module(root, path) for room in ROOMS for path in modules_of(root, room)]
    return [f"{module.path}: no docstring; say in one sentence what it holds" for module in modules if not module.summary]


def _page(root: Path, room: str) -> str:
    readme = root / room / "README.md"
    old = readme.read_text() if readme.exists() else f"# {room}\n"
    return replaced(old, section(room, [read_module(root, path) for path in modules_of(root, room)]))


def replaced(page: str, made: str) -> str:
    """The page with what stands between the two marks made anew; the marks go to its end where they are missing."""
    if BEGIN not in page or END not in page:
        page = f"{page.rstrip()}\n\n## Modules\n\n{BEGIN}\n{END}\n"
    before, _, rest = page.partition(BEGIN)
    return f"{before}{BEGIN}\n{made}\n{END}{rest.partition(END)[2]}"


def section(room: str, modules: Sequence[Module]) -> str:
    """The drawings, then the table."""
    drawn = "\n\n".join(f"```text\n{text}\n```" for text in drawings(modules))
    rows = [f"| [{_inside(room, module)}]({_inside(room, module)}) | {cell(module.summary)} |" for module in modules]
    return "\n".join([_NOTE, "", *([drawn, ""] if drawn else []), "| module | what it holds |", "|---|---|", *rows])


def _inside(room: str, module: Module) -> str:
    return module.path.removeprefix(f"{room}/")


def cell(text: str) -> str:
    return text.replace("|", "\\|")
