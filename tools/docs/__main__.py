"""`python -m tools.docs`: writes the made parts of docs anew; with --check it names what is stale or broken instead."""

import argparse
import sys
from pathlib import Path
from typing import Final

from tools.docs.blocks import block_problems
from tools.docs.chart_values import chart_pages, chart_problems
from tools.docs.command_lines import command_pages
from tools.docs.contract_names import contract_pages, contract_problems
from tools.docs.dashboards import dashboard_pages
from tools.docs.decisions import decision_pages, decision_problems
from tools.docs.metric_names import metric_pages, metric_problems
from tools.docs.pages import page_problems, wrapped_pages
from tools.docs.repository import ROOT
from tools.docs.rights import rights_pages, rights_problems
from tools.docs.rooms import room_pages, room_problems
from tools.docs.site import nav_problems

PROBLEMS: Final = (
    room_problems,
    decision_problems,
    rights_problems,
    contract_problems,
    metric_problems,
    chart_problems,
    block_problems,
    nav_problems,
)


def made_pages(root: Path) -> dict[str, str]:
    """Every page with a made part, as it should be."""
    pages = (room_pages, decision_pages, rights_pages, contract_pages, metric_pages, dashboard_pages, chart_pages, command_pages)
    return {path: text for made in pages for path, text in made(root).items()}


def stale(root: Path, pages: dict[str, str]) -> list[str]:
    """Pages that differ from what the code says now."""
    now = {path: (root / path).read_text() if (root / path).exists() else "" for path in pages}
    return [f"{path}: stale; `make docs` writes it anew" for path, text in pages.items() if now[path] != text]


def write(root: Path, pages: dict[str, str]) -> None:
    for path, text in pages.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.docs", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail and say what is stale or broken")
    if not parser.parse_args().check:
        write(ROOT, wrapped_pages(ROOT))
        write(ROOT, decision_pages(ROOT))  # a status that was missing is in the index below
        write(ROOT, made_pages(ROOT))
    problems = [problem for found in PROBLEMS for problem in found(ROOT)]
    problems += [*stale(ROOT, made_pages(ROOT)), *page_problems(ROOT)]
    print("\n".join(problems) or "docs say what the code says", file=sys.stderr if problems else sys.stdout)
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
