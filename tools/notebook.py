"""`python -m tools.notebook FILE ...`: runs a notebook's cells anew and writes what they give into the file.

Jupyter's own runner and kernel take 77 MB; this runs plain Python cells in this process and knows no magic commands.
"""

import ast
import contextlib
import io
import json
import sys
from pathlib import Path
from typing import Any, Final

Cell = dict[str, Any]
# How an object shows itself, by the method that Jupyter asks.
SHOWN: Final = {"_repr_svg_": "image/svg+xml", "_repr_html_": "text/html", "_repr_markdown_": "text/markdown"}


def read(path: Path) -> dict[str, Any]:
    """The notebook as it lies there."""
    document: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return document


def run(document: dict[str, Any]) -> dict[str, Any]:
    """The same notebook with the outputs of now; an exception of a cell ends it. The working folder is the caller's."""
    names: dict[str, Any] = {"__name__": "__main__"}
    number, cells = 0, list[Cell]()
    for cell in document["cells"]:
        if cell["cell_type"] == "code":
            number += 1
            cell = {**cell, "execution_count": number, "outputs": _outputs("".join(cell["source"]), number, names)}
        cells.append(cell)
    return {**document, "cells": cells}


def outputs(document: dict[str, Any]) -> list[list[dict[str, Any]]]:
    """Of each code cell."""
    return [cell["outputs"] for cell in document["cells"] if cell["cell_type"] == "code"]


def _outputs(source: str, number: int, names: dict[str, Any]) -> list[dict[str, Any]]:
    """What is printed, then what the cell's last line gives if it is an expression."""
    tree, value = ast.parse(source), None
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, f"cell {number}", "exec"), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), f"cell {number}", "eval"), names)
    found: list[dict[str, Any]] = []
    if text := printed.getvalue():
        found.append({"name": "stdout", "output_type": "stream", "text": _lines(text)})
    if value is not None:
        found.append({"data": _data(value), "execution_count": number, "metadata": {}, "output_type": "execute_result"})
    return found


def _data(value: object) -> dict[str, list[str]]:
    shown = {kind: getattr(value, method)() for method, kind in SHOWN.items() if hasattr(value, method)}
    return {kind: _lines(text) for kind, text in {**shown, "text/plain": repr(value)}.items()}


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def main(names: list[str]) -> None:
    for name in names:
        path = Path(name).resolve()
        with contextlib.chdir(path.parent):
            document = run(read(path))
        path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
