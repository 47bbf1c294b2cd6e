"""The folders are the architecture; these checks keep them from shadowing Python's own modules or each other.

The top-level folder `operator` has the name of a module of the standard library. It stays harmless only while it is no
package and holds no loose module, and while no test file lies outside tests/.
"""

import ast
import operator
import re
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = {
    "core": "kompakt_core",
    "client": "kompakt_client",
    "operator": "kompakt_operator",
    "extender": "kompakt_extender",
    "device-plugin": "kompakt_device_plugin",
    "runtime": "kompakt_runtime",
    "simulator": "kompakt_simulator",
    "sdk": "kompakt",
    "cli": "kompakt_cli",
}


def project_of(folder: str) -> dict[str, object]:
    return tomllib.loads((ROOT / folder / "pyproject.toml").read_text())


@pytest.mark.parametrize("folder", PACKAGES)
def test_a_package_folder_holds_one_package_its_pyproject_and_nothing_loose(folder: str) -> None:
    modules = {path.name for path in (ROOT / folder).glob("*.py*")}
    assert modules == set(), "a module here could shadow one of Python's own"
    packages = {path.parent.name for path in (ROOT / folder).glob("*/__init__.py")}
    assert packages == {PACKAGES[folder]}
    assert project_of(folder)["project"]["name"] == f"kompakt-{folder}"  # type: ignore[index]


def test_the_workspace_lists_exactly_these_folders() -> None:
    root = project_of(".")
    assert set(root["tool"]["uv"]["workspace"]["members"]) == set(PACKAGES)  # type: ignore[index]
    assert {path.parent.name for path in ROOT.glob("*/pyproject.toml")} == set(PACKAGES)


def test_pythons_own_operator_stays_importable_here() -> None:
    assert operator.add(1, 2) == 3
    assert Path(operator.__file__).parent == Path(sysconfig.get_path("stdlib"))


def test_pythons_own_operator_wins_in_a_process_started_at_the_root() -> None:
    code = "import json, operator; print(operator.add(1, 2), operator.__file__)"
    shown = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env={"PYTHONPATH": "."}, capture_output=True, text=True, check=True
    )
    assert shown.stdout.split()[0] == "3"
    assert str(ROOT / "operator") not in shown.stdout


def tracked() -> list[Path]:
    """All files that git knows or would add, so that environments and caches do not count."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [Path(name) for name in shown.split("\0") if name and (ROOT / name).exists()]


def test_tests_lie_under_tests_and_are_no_packages() -> None:
    names = tracked()
    assert [name for name in names if name.parts[0] == "tests" and name.name == "__init__.py"] == []
    tests = [name for name in names if name.suffix == ".py" and (name.name.startswith("test_") or name.name == "conftest.py")]
    assert [name for name in tests if name.parts[0] != "tests"] == []
    assert Path("tests/unit/test_layout.py") in tests


def imports_of_tests(path: Path) -> set[str]:
    """What a file imports from below tests/, apart from the helpers and a program that tests try (a report on NVML)."""
    froms = [node for node in ast.walk(ast.parse((ROOT / path).read_text())) if isinstance(node, ast.ImportFrom)]
    names = {f"{node.module}.{alias.name}" for node in froms for alias in node.names if (node.module or "").startswith("tests")}
    return {name for name in names if not name.startswith(("tests.support.", "tests.gpu.nvml_report"))}


def test_no_test_imports_another() -> None:
    """What tests share lies in tests/support."""
    tests = [name for name in tracked() if name.parts[0] == "tests" and name.suffix == ".py"]
    assert len(tests) > 200
    assert {str(path): names for path in tests if (names := imports_of_tests(path))} == {}


def test_pytest_imports_tests_without_touching_the_search_path() -> None:
    assert "--import-mode=importlib" in project_of(".")["tool"]["pytest"]["ini_options"]["addopts"]  # type: ignore[index]


def test_files_of_tests_that_are_named_in_lists_exist() -> None:
    """A renamed file would silently leave the list: skipped without PyTorch, or not run with the oldest one."""
    runtime = ROOT / "tests" / "unit" / "runtime"
    lists = (ROOT / "tests" / "conftest.py").read_text(), (runtime / "test_old_torch.py").read_text()
    named = set(re.findall(r'"(test_\w+\.py)"', lists[0].partition("WITHOUT_TORCH")[2].partition("}")[0]))
    topics = re.findall(r'"(\w+)"', lists[1].partition("TOPICS")[2].partition("\n)")[0])
    assert len(named) > 10 < len(topics)
    missing = [name for name in [*named, *(f"test_{topic}.py" for topic in topics)] if not (runtime / name).is_file()]
    assert not missing
