"""docs/reference/annotations.md: every name that parts of kompakt, pods and users share, from the comments above the names in
`kompakt_core.contract`."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tools.docs.rooms import cell

PAGE: Final = "docs/reference/annotations.md"
NAMES: Final = "core/kompakt_core/contract/__init__.py"
CONDITIONS: Final = "core/kompakt_core/contract/conditions.py"
FORM: Final = "the comment above must say: who writes it -> who reads it: what it means"
_HEAD: Final = f"""# Annotations, labels, environment, conditions

<!-- Made by `make docs` from the comments in {NAMES} and {CONDITIONS}; do not edit. -->

The names that stand in objects of the cluster and in the environment of training containers: who writes each, who reads it, and
what it means. *Operator*, *planner*, *extender* and *device plugin* are parts of kompakt ([glossary](../glossary.md)); *all* are
these four. kompakt's admission policies refuse most writes of others to labels and annotations of pods
([security](../security.md)). The fields of the objects are on pages of their own: [TrainingJob](trainingjob.md),
[GPUTopology](gputopology.md), [Limits](joblimit.md).
"""
# Heading, what it says first, file and a pattern of the names in code.
_SECTIONS: Final = (
    ("Annotations", "Of pods, but for `kompakt.dev/profile`, which is for TrainingJobs.", NAMES, r"ANN_\w+"),
    (
        "Labels",
        "`kompakt.dev/machine`, `rack` and `block` are labels of nodes, the others of a job's pods and Services.",
        NAMES,
        r"LABEL_\w+",
    ),
    ("Environment of training containers", "A value in the pod template wins over the operator's.", NAMES, r"ENV_\w+"),
    ("Names in specs, and Leases", "", NAMES, r"RESOURCE|SCHEDULER_NAME|GATE|MANAGED_BY|\w+_LEASE"),
    ("Conditions of a TrainingJob", "The meaning is that of status True.", CONDITIONS, r"Type\.\w+"),
    ("Conditions of a GPUTopology", "The meaning is that of status True.", CONDITIONS, r"TopologyType\.\w+"),
    (
        "Reasons of conditions",
        "Besides these, a reason tells why an attempt ended, why a gang waits ([TrainingJob](../trainingjob.md#conditions)), or "
        "what is unusual about a link graph ([device plugin](../device-plugin.md#what-the-conditions-mean)).",
        CONDITIONS,
        r"ConditionReason\.\w+",
    ),
)
_SAID: Final = re.compile(r"(?P<writers>[^:]+?) -> (?P<readers>[^:]+?): (?P<meaning>.+)")


@dataclass(frozen=True, slots=True)
class SharedName:
    """A constant of the contract: its name in code, its text, and the comment above it on one line."""

    code: str
    line: int
    text: str
    comment: str


def contract_pages(root: Path) -> dict[str, str]:
    """The whole page."""
    tables = [_section(title, first, _chosen(root, path, pattern)) for title, first, path, pattern in _SECTIONS]
    return {PAGE: "\n".join([_HEAD, *tables])}


def contract_problems(root: Path) -> list[str]:
    """Names whose comment does not say who writes and reads them."""
    chosen = [(path, name) for _, _, path, pattern in _SECTIONS for name in _chosen(root, path, pattern)]
    return [f"{path}:{name.line}: {name.code}: {FORM}" for path, name in chosen if not _SAID.fullmatch(name.comment)]


def shared_names(source: str) -> list[SharedName]:
    """All texts that are assigned to a name, at the module's level or in a class of it."""
    lines = source.splitlines()
    return [
        SharedName(f"{above}{target}", node.lineno, node.value.value, _comment(lines, node.lineno))
        for above, node in _assignments(ast.parse(source))
        if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        for target in [ast.unparse(node.targets[0] if isinstance(node, ast.Assign) else node.target)]
    ]


def _assignments(tree: ast.Module) -> Iterator[tuple[str, ast.Assign | ast.AnnAssign]]:
    for node in tree.body:
        for inner in node.body if isinstance(node, ast.ClassDef) else [node]:
            if isinstance(inner, ast.Assign | ast.AnnAssign):
                yield f"{node.name}." if isinstance(node, ast.ClassDef) else "", inner


def _comment(lines: list[str], number: int) -> str:
    """The comment in the lines right above line `number`."""
    found: list[str] = []
    for line in reversed(lines[: number - 1]):
        if not line.lstrip().startswith("#"):
            break
        found.insert(0, line.strip().removeprefix("#").strip())
    return " ".join(found)


def _chosen(root: Path, path: str, pattern: str) -> list[SharedName]:
    return [name for name in shared_names((root / path).read_text()) if re.fullmatch(pattern, name.code)]


def _section(title: str, first: str, names: list[SharedName]) -> str:
    rows = [_row(name) for name in names]
    head = ["| name | written by | read by | meaning |", "|---|---|---|---|"]
    return "\n".join([f"## {title}", "", *([first, ""] if first else []), *head, *rows, ""])


def _row(name: SharedName) -> str:
    said = _SAID.fullmatch(name.comment)
    words = [said["writers"], said["readers"], said["meaning"]] if said else ["", "", ""]
    return "| " + " | ".join([f"`{name.text}`", *map(cell, words)]) + " |"
