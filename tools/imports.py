"""Which test files import a module, by themselves, through a test helper or through a package that hands its names on."""

import ast
from collections.abc import Iterator
from pathlib import Path

LEVELS = ("unit", "contract")


def module_name(path: Path, checkout: Path) -> str:
    """As it is imported: tests by their folder, our packages without the folder of their room."""
    parts = path.relative_to(checkout).with_suffix("").parts
    inside = parts if parts[0] in ("tests", "tools", "benchmarks") else parts[1:]
    return ".".join(inside[:-1] if inside[-1] == "__init__" else inside)


def imported(source: str, package: str) -> Iterator[str]:
    """The dotted names that a file's text imports; of `from a import b` both `a` and `a.b`, since `b` may be a module."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = ".".join(package.split(".")[: len(package.split(".")) - node.level + 1]) if node.level else ""
            base = ".".join(filter(None, [above, node.module or ""]))
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)


class Importers:
    """The unit and contract tests of a checkout, with what each imports."""

    def __init__(self, checkout: Path) -> None:
        self._checkout = checkout
        files = [path for path in checkout.glob("*/**/*.py") if ".venv" not in path.parts]
        self._imports = {module_name(path, checkout): self._read(path) for path in sorted(files)}
        self._tests = {
            module_name(path, checkout): str(path.relative_to(checkout))
            for level in LEVELS
            for path in sorted((checkout / "tests" / level).rglob("test_*.py"))
        }

    def of(self, path: Path) -> list[str]:
        """The test files that import this module, in order; where none does, those of its nearest importers among our modules."""
        wanted, seen = {module_name(path, self._checkout)}, set[str]()
        while wanted - seen:
            seen |= wanted
            reached = self._with_helpers(wanted)
            if files := sorted(self._tests[name] for name in reached & self._tests.keys()):
                return files
            wanted = reached
        return []

    def _with_helpers(self, wanted: set[str]) -> set[str]:
        """Who imports one of these; test helpers and packages that hand names on are looked through."""
        found: set[str] = set()
        edge = set(wanted)
        while edge:
            importers = {name for name, names in self._imports.items() if names & edge} - found
            found |= importers
            above = {name.rpartition(".")[0] for name in edge}
            edge = {name for name in importers if (name.startswith("tests.") and name not in self._tests) or name in above}
        return found

    def _read(self, path: Path) -> set[str]:
        name = module_name(path, self._checkout)
        package = name if path.name == "__init__.py" else name.rpartition(".")[0]
        return set(imported(path.read_text(), package))
