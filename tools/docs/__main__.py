"""`python -m tools.docs`: writes the made parts of docs anew; with --check it names what is stale or broken instead."""

import argparse
import sys
from pathlib import Path

from tools.docs.decisions import decision_pages, decision_problems
from tools.docs.pages import page_problems, wrapped_pages
from tools.docs.repository import ROOT
from tools.docs.rights import rights_pages, rights_problems
from tools.docs.rooms import room_pages, room_problems


def made_pages(root: Path) -> dict[str, str]:
    """Every page with a made part, as it should be."""
    return room_pages(root) | decision_pages(root) | rights_pages(root)


def stale(root: Path, pages: dict[str, str]) -> list[str]:
    """Pages that differ from what the code says now."""
    now = {path: (root / path).read_text() if (root / path).exists() else "" for path in pages}
    return [f"{path}: stale; `make docs` writes it anew" for path, text in pages.items() if now[path] != text]


def write(root: Path, pages: dict[str, str]) -> None:
    for path, text in pages.items():
        (root / path).write_text(text)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.docs", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail and say what is stale or broken")
    if not parser.parse_args().check:
        write(ROOT, wrapped_pages(ROOT))
        write(ROOT, decision_pages(ROOT))  # a status that was missing is in the index below
        write(ROOT, made_pages(ROOT))
    problems = [*room_problems(ROOT), *decision_problems(ROOT), *rights_problems(ROOT)]
    problems += [*stale(ROOT, made_pages(ROOT)), *page_problems(ROOT)]
    print("\n".join(problems) or "docs say what the code says", file=sys.stderr if problems else sys.stdout)
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
