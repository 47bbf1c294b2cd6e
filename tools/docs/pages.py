"""What must hold of every page: links lead somewhere, named files exist, lines of prose are short enough."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tools.docs.decisions import FOLDER as DECISIONS
from tools.docs.repository import ROOMS, ignored, tracked
from tools.docs.wrap import WIDTH, wrapped

PAGES: Final = "*.md"  # in every folder
# What happened names files that are gone, and what another program makes is that program's: lines of both stay as they are.
LEFT_ALONE: Final = ("CHANGELOG.md", f"{DECISIONS}/", "docs/reference/")
MADE: Final = ("docs/reference/",)  # pages without line breaks of their own: they come from the declarations of fields
_FOLDERS: Final = "|".join(("benchmarks", "charts", "crds", "docs", "examples", "kind", "requirements", "tests", *ROOMS))
LINK: Final = re.compile(r"\[(?P<text>[^\]]*)\]\((?P<target>[^)\s]+)\)")
_OTHER_LINKS: Final = (
    re.compile(r"<(?:a|img)\b[^>]*?\b(?:href|src)=[\"'](?P<target>[^\"']+)"),
    re.compile(r"^\[[^\]]+\]: *(?P<target>\S+)", re.MULTILINE),
)
_PATH = re.compile(rf"(?:{_FOLDERS})/[\w./*-]*")
_NAMED = re.compile(r"([\w./-]+\.py)::(\w+)")
_BARE = re.compile(r"[\w/-]+\.py")


def wrapped_pages(root: Path) -> dict[str, str]:
    """Pages of prose that have a too long line, broken anew."""
    texts = {page: (root / page).read_text() for page in tracked(root, PAGES) if not page.startswith(LEFT_ALONE)}
    return {page: wrapped(text) for page, text in texts.items() if wrapped(text) != text}


def page_problems(root: Path) -> list[str]:
    """Everything wrong with pages, as `path:line: what is wrong`."""
    return [problem for page in tracked(root, PAGES) for problem in _of_page(root, page)]


def _of_page(root: Path, page: str) -> Iterator[str]:
    lines = prose((root / page).read_text())
    yield from (f"{page}:{number}: {problem}" for number, problem in _broken_links(root, page, "\n".join(lines)))
    if not page.startswith(LEFT_ALONE):
        for number, line in enumerate(lines, 1):
            width = () if page.startswith(MADE) else _too_long(line)
            yield from (f"{page}:{number}: {problem}" for problem in (*_missing_paths(root, page, line), *width))


def prose(text: str) -> list[str]:
    """The page's lines, those of code blocks empty."""
    fenced, found = False, []
    for line in text.splitlines():
        mark = line.lstrip().startswith("```")
        found.append("" if fenced or mark or line.startswith("    ") else line)
        fenced ^= mark
    return found


def _too_long(line: str) -> Iterator[str]:
    """A row of a table cannot be broken, and a quotation stays as its author wrote it."""
    if len(line) > WIDTH and not line.lstrip().startswith(("|", ">")):
        yield f"{len(line)} characters; break lines of prose at {WIDTH}"


def _broken_links(root: Path, page: str, text: str) -> Iterator[tuple[int, str]]:
    """Links with their line; their words may run over two. Marks of HTML and definitions of references count as well."""
    for link in sorted((link for form in (LINK, *_OTHER_LINKS) for link in form.finditer(text)), key=lambda link: link.start()):
        if problem := _broken(root, page, link["target"]):
            yield text.count("\n", 0, link.start()) + 1, f"link to {link['target']}: {problem}"


def _broken(root: Path, page: str, target: str) -> str:
    name, _, anchor = target.partition("#")
    path = (root / page).parent / name if name else root / page
    if "://" in target or target.startswith("mailto:"):
        return ""
    if not path.exists():
        return "there is no such file"
    if not path.resolve().is_relative_to(root.resolve()) or ignored(root, path):
        return "the file is not one of the repository's"
    wrong = anchor and path.suffix == ".md" and anchor not in anchors(path.read_text())
    return "no heading gives this anchor" if wrong else ""


def anchors(text: str) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    found: dict[str, int] = {}
    for line in prose(text):
        if re.match(r"#+ ", line):
            name = slug(re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", line.lstrip("# ")))
            found[name] = found.get(name, -1) + 1
    return set(found) | {f"{name}-{n}" for name, last in found.items() for n in range(1, last + 1)}


def slug(heading: str) -> str:
    """The anchor of a heading's plain text, but for the number of one that stands on the page twice."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def _missing_paths(root: Path, page: str, line: str) -> Iterator[str]:
    """What a line names in backticks and is gone: files and folders from the root, `file::name`, and modules alone: those
    of its own room in a room's README, elsewhere those beside the file that the line names before.
    """
    room = page.removesuffix("/README.md")
    inside = f"{room}/**/" if room in ROOMS else ""
    for token in re.findall(r"`([^`]+)`", line):
        named = _NAMED.fullmatch(token)
        if named and not _defines(root / named[1], named[2]):
            yield f"`{token}`: there is no such name"
        elif _PATH.fullmatch(token):
            inside = f"{token.rpartition('/')[0]}/" if room not in ROOMS else inside
            if not _exists(root, token):
                yield f"`{token}`: there is no such file"
        elif inside and _BARE.fullmatch(token) and not _exists(root, inside + token):
            yield f"`{token}`: there is no such file in {inside.removesuffix('**/')}"


def _defines(path: Path, name: str) -> bool:
    """Whether a module has this test, function, method, class or constant."""
    definition = re.compile(rf"^ *(async )?(def|class) {name}\b|^{name}\b", re.MULTILINE)
    return path.exists() and definition.search(path.read_text()) is not None


def _exists(root: Path, pattern: str) -> bool:
    return any(True for _ in root.glob(pattern.rstrip("/")))
