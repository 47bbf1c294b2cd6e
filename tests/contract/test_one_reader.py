"""How annotations, labels and moments are written and read is the contract's alone: nobody else touches the strings."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from kompakt_core import contract

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("core", "client", "operator", "extender", "device-plugin", "sdk", "cli", "simulator")
CONTRACT = ROOT / "core" / "kompakt_core" / "contract"
NAMES = {name: value for name, value in vars(contract).items() if name.startswith(("ANN_", "LABEL_"))}
# Names that others use as a whole, without reading or writing a value: why.
AS_A_WHOLE = {
    "core/kompakt_core/job/spec.py": {"ANN_PROFILE"},  # the field of an error; profile.document reads it
    "core/kompakt_core/placement/seating.py": {"LABEL_RACK", "LABEL_BLOCK"},  # keys of node labels, whose values are any text
    "operator/kompakt_operator/environment.py": {"ANN_RANK"},  # whose value a variable gets
    "operator/kompakt_operator/observed.py": {"LABEL_JOB_UID"},  # the key alone selects
    "extender/kompakt_extender/command_line.py": {"LABEL_RACK", "LABEL_BLOCK"},  # defaults of options
    "extender/kompakt_extender/gangs_of_others.py": {"LABEL_GANG", "ANN_GANG_SIZE", "ANN_REQUIRED_LEVEL"},  # words of messages
    "extender/kompakt_extender/node_state.py": {"LABEL_MACHINE"},  # any text
    "extender/kompakt_extender/explain/what_if.py": {
        "ANN_PATTERN", "ANN_EDGES", "ANN_POLICY", "ANN_SENSITIVITY", "ANN_REQUIRED_LINK",
    },  # fields that are handed to the contract's decoder
    "device-plugin/kompakt_device_plugin/source.py": {"LABEL_MACHINE"},  # any text
    "cli/kompakt_cli/doctor_nodes.py": {"LABEL_MACHINE", "LABEL_RACK", "LABEL_BLOCK"},  # keys of node labels, any text
    "cli/kompakt_cli/doctor_install.py": {"LABEL_MACHINE"},  # the key in a command
    "cli/kompakt_cli/profile_jobs.py": {"ANN_PROFILE"},  # profile.document writes it
}  # fmt: skip
# Reading and writing of moments: the simulator's are those of recorded logs, in other forms.
MOMENTS = {"strftime", "strptime", "fromisoformat", "isoformat"}
OTHER_MOMENTS = {"simulator/kompakt_simulator/traces/fields.py": {"fromisoformat"}}
OTHER_LISTS = {"core/kompakt_core/topology/graph.py"}  # NUMA nodes of GPUs, for a digest


def modules() -> Iterator[tuple[str, ast.AST]]:
    """All of the product outside the contract, by path."""
    for package in PACKAGES:
        for path in sorted((ROOT / package).glob("kompakt*/**/*.py")):
            if CONTRACT not in path.parents:
                yield str(path.relative_to(ROOT)), ast.parse(path.read_text())


def docstrings(tree: ast.AST) -> set[int]:
    """Constants that are documentation."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    bodies = [node.body for node in ast.walk(tree) if isinstance(node, kinds) and node.body]
    return {id(body[0].value) for body in bodies if isinstance(body[0], ast.Expr)}


def names_used(tree: ast.AST) -> set[str]:
    """Names of annotations and labels that a module asks the contract for."""
    found = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    found |= {one.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for one in node.names}
    return found & NAMES.keys()


def literals(tree: ast.AST) -> set[str]:
    """Annotations and labels that a module spells out; sentences for people may name them."""
    told = docstrings(tree)
    texts = [n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str) and id(n) not in told]
    return {name for name in NAMES.values() if any(name in text and " " not in text for text in texts)}


def calls(tree: ast.AST, names: set[str]) -> set[str]:
    """Methods of these names that a module calls."""
    called = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return {one.attr for one in called if isinstance(one, ast.Attribute)} & names


def gpu_lists_by_hand(tree: ast.AST) -> set[int]:
    """Lines on which something that is called after GPUs or UUIDs is joined with commas, or such an annotation split at them."""
    found = set()
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("join", "split")):
            continue
        about = ast.unparse(node).lower()
        if ('","' in about or "','" in about) and any(word in about for word in ("gpu", "uuid", "annotation", "notes")):
            found.add(node.lineno)
    return found


def test_names_of_annotations_and_labels_are_used_by_the_contract_alone() -> None:
    assert {path: names for path, tree in modules() if (names := names_used(tree))} == AS_A_WHOLE


def test_no_annotation_or_label_is_spelled_out() -> None:
    assert {path: found for path, tree in modules() if (found := literals(tree))} == {}


def test_moments_are_written_and_read_by_the_contract_alone() -> None:
    found = {path: called for path, tree in modules() if (called := calls(tree, MOMENTS))}
    assert found == OTHER_MOMENTS


def test_lists_of_gpus_are_joined_and_split_by_the_contract_alone() -> None:
    # What is for people (logs, messages) is joined with a comma and a blank.
    assert {path for path, tree in modules() if gpu_lists_by_hand(tree)} == OTHER_LISTS


@pytest.mark.parametrize(
    ("code", "seen"),
    [
        ('notes.get(contract.ANN_GPUS, "").split(",")', (names_used, {"ANN_GPUS"})),
        ("from kompakt_core.contract import LABEL_ATTEMPT", (names_used, {"LABEL_ATTEMPT"})),
        ('labels["kompakt.dev/attempt"]', (literals, {"kompakt.dev/attempt"})),
        ('f"{x}/kompakt.dev/gpus"', (literals, {"kompakt.dev/gpus"})),
        ('"the annotation kompakt.dev/gpus says so"', (literals, set())),
        ('def f():\n    "The annotation kompakt.dev/gpus."', (literals, set())),
        ('now.strftime("%Y")', (lambda tree: calls(tree, MOMENTS), {"strftime"})),
        ('",".join(pod.gpus)', (gpu_lists_by_hand, {1})),
        ('text.split(",")', (gpu_lists_by_hand, set())),
        ('", ".join(pod.gpus)', (gpu_lists_by_hand, set())),
        ('notes["x"].split(",")', (gpu_lists_by_hand, {1})),
    ],
)
def test_these_checks_see_what_they_look_for(code: str, seen: tuple) -> None:
    look, expected = seen
    assert look(ast.parse(code)) == expected
