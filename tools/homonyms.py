"""`python -m tools.homonyms`: class names that stand for two things, which `make check` refuses.

A reader who searches for a class should land in one place. A name may stand twice only where docs/glossary.md gives a reason.
"""

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
GLOSSARY: Final = ROOT / "docs" / "glossary.md"
# Tests and benchmarks make small worlds of their own, generated messages follow kubelet's names, examples are users' programs.
ROOMS: Final = ("core", "client", "operator", "extender", "device-plugin", "runtime", "simulator", "sdk", "cli", "tools")
HEADING: Final = "## Words of another meaning elsewhere"
ROW: Final = re.compile(r"^\| `(\w+)` \| (.+) \|$", re.MULTILINE)

Places = Mapping[str, list[str]]


def classes(sources: Iterable[tuple[str, str]]) -> Places:
    """Where each class is defined: its name, then the paths. `sources`: path and text of each module."""
    places: defaultdict[str, list[str]] = defaultdict(list)
    for path, text in sources:
        for node in ast.walk(ast.parse(text, path)):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(path)
    return places


def allowed(glossary: str) -> dict[str, str]:
    """The homonyms that the glossary explains: class name to reason."""
    return dict(ROW.findall(glossary.partition(HEADING)[2]))


def complaints(places: Places, reasons: Mapping[str, str]) -> list[str]:
    """One sentence for each homonym without a reason, and for each reason without a homonym."""
    twice = {name: paths for name, paths in places.items() if len(paths) > 1}
    unknown = [
        f"class {name} stands in {', '.join(sorted(paths))}" for name, paths in sorted(twice.items()) if name not in reasons
    ]
    needless = [f"docs/glossary.md explains {name}, which is no homonym" for name in sorted(set(reasons) - set(twice))]
    return unknown + needless


def sources() -> Iterable[tuple[str, str]]:
    """The modules of all packages and of tools/."""
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*.py")):
            if "proto" not in path.parts:
                yield str(path.relative_to(ROOT)), path.read_text()


def main() -> int:
    found = complaints(classes(sources()), allowed(GLOSSARY.read_text()))
    for line in found:
        print(f"{line}: give each thing a name of its own, or the glossary a reason", file=sys.stderr)
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
