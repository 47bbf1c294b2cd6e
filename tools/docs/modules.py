"""One module as its table row and the drawing need it: its path, its dotted name, one sentence, what it imports."""

import ast
import re
from dataclasses import dataclass
from pathlib import Path

_SENTENCE = re.compile(r"(?<!e\.g)(?<!i\.e)[.!?](?=\s)")


@dataclass(frozen=True, slots=True)
class Module:
    """`name` is dotted, without `__init__`; `summary` is empty where the file has no docstring."""

    path: str
    name: str
    summary: str
    imports: frozenset[str]


def read_module(root: Path, path: str) -> Module:
    """Parses the file; nothing is imported, so a module that needs PyTorch or a GPU is read like any other."""
    tree = ast.parse((root / path).read_text(), path)
    return Module(path, dotted(path), first_sentence(ast.get_docstring(tree) or ""), frozenset(_imports(tree)))


def dotted(path: str) -> str:
    """`core/kompakt_core/job/spec.py` is `kompakt_core.job.spec`; a file of no package goes by its own name."""
    parts = list(Path(path).with_suffix("").parts)
    if parts[0] != "tools":
        parts = parts[1:]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def first_sentence(docstring: str) -> str:
    """The first sentence of the first paragraph, on one line, with the full stop that ends it."""
    paragraph = " ".join(docstring.split("\n\n")[0].split())
    end = _SENTENCE.search(paragraph)
    return paragraph[: end.end()] if end else paragraph


def _imports(tree: ast.Module) -> set[str]:
    """All names that import statements could mean, those inside functions too; `from a import b` is a and a.b."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found
