"""The check of a package alone finds what it is there to find."""

import sys
from pathlib import Path

import pytest

from tools.alone import extras_of
from tools.alone_probe import import_all, imports_of, undeclared


def package(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> str:
    """A package with one module `part` on the search path; its name is new each time."""
    name = f"sample_{abs(hash(text))}"
    (folder / name).mkdir()
    (folder / name / "__init__.py").write_text("")
    (folder / name / "part.py").write_text(text)
    monkeypatch.syspath_prepend(str(folder))
    return name


def test_imports_inside_functions_are_seen(tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text(
        "import os.path\ndef late():\n    from absent.inner import thing\n    from . import sibling\n"
    )
    assert list(imports_of(tmp_path / "module.py")) == [(1, "os"), (3, "absent")]


def test_an_undeclared_import_is_named_with_its_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = package(tmp_path, monkeypatch, "def late():\n    import absent_package\n")
    assert undeclared(name, []) == [f"{name}/part.py:2: imports absent_package, which is not declared"]
    assert undeclared(name, ["absent_package"]) == []


def test_a_module_that_cannot_be_imported_is_a_problem_unless_an_extra_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = package(tmp_path, monkeypatch, "import absent_package\n")
    imported, waiting, broken = import_all(name, [])
    assert (imported, waiting, len(broken)) == (1, [], 1)
    imported, waiting, broken = import_all(name, ["absent_package"])
    assert (imported, len(waiting), broken) == (1, 1, [])
    assert name in sys.modules


def test_the_extras_of_the_runtime_are_read_from_its_pyproject() -> None:
    assert "torch" in extras_of("runtime")
    assert extras_of("core") == ["numpy", "networkx"]
    assert extras_of("cli") == ["kompakt-simulator", "kompakt-runtime", "torch"]
    assert extras_of("client") == []
