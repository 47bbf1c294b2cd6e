"""Parts that run before torch is loaded, or where there is none: nothing that they import imports it."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[3] / "runtime" / "kompakt_runtime"


def _name(path: Path) -> str:
    """Of a module, after the package's own."""
    return ".".join(path.relative_to(PACKAGE).with_suffix("").parts)


SAYS_SO = {
    _name(path) for path in PACKAGE.rglob("*.py") if "No torch here" in (ast.get_docstring(ast.parse(path.read_text())) or "")
}
NEEDED = {
    "": "a program imports the package before it decides to use it",
    "launch.kompakt_run": "--help, and a line that is wrong",
    "launch.run": "the process that runs another one",
    "launch.options": "`kompakt run`",
    "config": "a wrong setting is told before torch is loaded",
    "report.text": "figures that other processes wrote",
    "figures.export": "a process that fails at start-up reports",
    "start": "an old torch, and no torch at all, are told in a sentence",
    "launch.profiling": "`kompakt profile`",
    "cost.batch": "a larger batch, from sizes that somebody measured",
}
# Outside of the standard library and torch: who may import it, somewhere.
OTHERS = {
    "launch.command": {"typer"},
    "launch.run": {"rich"},
    "report.text": {"rich", "matplotlib"},
    "report.gradient_errors": {"rich"},
    **{f"codec.{name}": {"triton"} for name in ("pack_kernels", "unpack_kernels", "word_kernels")},
}
REFUSE = """
import importlib, sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] not in {*sys.stdlib_module_names, "kompakt_runtime"}:
            raise ModuleNotFoundError(f"{name} is not here", name=name)
sys.meta_path.insert(0, Refuse())
for name in sys.argv[1:]:
    importlib.import_module(name)
"""


def imported(path: Path) -> set[str]:
    """First parts of the names that a file imports, wherever the statement stands."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add((node.module or "").split(".")[0])
    return found


@pytest.mark.parametrize("name", sorted({*NEEDED, *SAYS_SO}))
def test_a_part_that_must_do_without_torch_does(name):
    module = f"kompakt_runtime.{name}".rstrip(".")
    done = subprocess.run([sys.executable, "-c", REFUSE, module], cwd=PACKAGE.parent, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_beside_torch_the_package_needs_the_standard_library_only():
    known = {*sys.stdlib_module_names, "torch", "kompakt_runtime"}
    found = {_name(path): imported(path) - known for path in PACKAGE.rglob("*.py")}
    assert {name: others for name, others in found.items() if others} == OTHERS
