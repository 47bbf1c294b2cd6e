"""Runs inside a package's own environment (see alone.py): import everything, and look at every import statement.

python -I alone_probe.py PACKAGE [EXTRA ...]
"""

import ast
import importlib
import importlib.metadata
import importlib.util
import pkgutil
import sys
from collections.abc import Iterator
from pathlib import Path


def modules_of(package: str) -> list[str]:
    """All modules of a package, itself first, without importing the inner ones."""
    root = importlib.import_module(package)
    inner = pkgutil.walk_packages(root.__path__, f"{package}.", onerror=lambda name: None)
    return [package, *(found.name for found in inner if not found.name.endswith(".__main__"))]


def imports_of(file: Path) -> Iterator[tuple[int, str]]:
    """(line, first part of the name) of every absolute import in a file, wherever it stands."""
    for node in ast.walk(ast.parse(file.read_text(), str(file))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name.split(".")[0]) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.lineno, node.module.split(".")[0]


def known(name: str) -> bool:
    return name in sys.stdlib_module_names or importlib.util.find_spec(name) is not None


def undeclared(package: str, extras: list[str]) -> list[str]:
    """Import statements that name what neither this environment nor an extra has."""
    folder = Path(importlib.import_module(package).__path__[0])
    return [
        f"{file.relative_to(folder.parent)}:{line}: imports {name}, which is not declared"
        for file in sorted(folder.rglob("*.py"))
        for line, name in imports_of(file)
        if name not in extras and not known(name)
    ]


def import_all(package: str, extras: list[str]) -> tuple[int, list[str], list[str]]:
    """How many modules were imported; which need an absent extra; what went wrong with the others."""
    imported = 0
    waiting: list[str] = []
    broken: list[str] = []
    for name in modules_of(package):
        try:
            importlib.import_module(name)
            imported += 1
        except ModuleNotFoundError as error:
            known_extra = (error.name or "").split(".")[0] in extras
            (waiting if known_extra else broken).append(f"{name}: {error}")
        except Exception as error:  # any failure of an import is the finding
            broken.append(f"{name}: {type(error).__name__}: {error}")
    return imported, waiting, broken


def entry_points_of(package: str, extras: list[str]) -> list[str]:
    """Entry points of the package's distribution that cannot be loaded."""
    broken = []
    (name,) = set(importlib.metadata.packages_distributions()[package])
    for entry in importlib.metadata.distribution(name).entry_points:
        try:
            entry.load()
        except ModuleNotFoundError as error:
            if (error.name or "").split(".")[0] not in extras:
                broken.append(f"entry point {entry.name} = {entry.value}: {error}")
        except AttributeError as error:
            broken.append(f"entry point {entry.name} = {entry.value}: {error}")
    return broken


def main() -> int:
    package, *extras = sys.argv[1:]
    imported, waiting, broken = import_all(package, extras)
    broken += undeclared(package, extras) + entry_points_of(package, extras)
    for line in broken:
        print(line)
    absent = f"{len(waiting)} need an extra ({', '.join(extras) or 'none'})"
    print(f"{package}: {imported} modules imported, {absent}, {len(broken)} problems")
    return int(bool(broken))


if __name__ == "__main__":
    sys.exit(main())
