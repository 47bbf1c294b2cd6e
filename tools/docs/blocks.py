"""What must hold of the code blocks of every page: each names its language and can be read as such; TrainingJobs are valid."""

import ast
import json
import re
import subprocess
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml

from kompakt_core import contract
from kompakt_core.errors import InvalidInput
from kompakt_core.job.spec import parse_job
from tools.docs.repository import tracked

PLAIN: Final = ("text", "console")  # as printed; what `console` shows is run by tools/docs/shown.py
ELISION: Final = "..."  # in a block: parts are left out, so it is no whole object
_FENCED: Final = re.compile(r"^( *)```([^\n]*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
_CRD: Final = "crds/trainingjobs.yaml"


@dataclass(frozen=True, slots=True)
class CodeBlock:
    """A fenced block; `line` is that of its first mark."""

    page: str
    line: int
    language: str
    text: str


def code_blocks(root: Path) -> Iterator[CodeBlock]:
    """All blocks of all pages."""
    for page in tracked(root, "*.md"):
        yield from blocks_of(page, (root / page).read_text())


def blocks_of(page: str, text: str) -> Iterator[CodeBlock]:
    """The blocks of one page; in a list they lose the list's indent."""
    for found in _FENCED.finditer(text):
        inner = re.sub(rf"^{found[1]}", "", found[3], flags=re.MULTILINE)
        yield CodeBlock(page, text.count("\n", 0, found.start()) + 1, found[2].strip(), inner)


def block_problems(root: Path) -> list[str]:
    """Everything wrong with blocks, as `path:line: what is wrong`."""
    return [f"{block.page}:{block.line}: {problem}" for block in code_blocks(root) if (problem := _wrong(root, block))]


def _wrong(root: Path, block: CodeBlock) -> str:
    if block.language in PLAIN:
        return ""
    if block.language not in _READERS:
        known = ", ".join((*PLAIN, *_READERS))
        return f"a code block of language {block.language!r}; right would be one of {known}"
    try:
        _READERS[block.language](root, block.text)
    except (ValueError, SyntaxError, yaml.YAMLError, InvalidInput) as error:
        return f"a block of {block.language} that cannot be read: {' '.join(str(error).split())}"
    return ""


def _read_yaml(root: Path, text: str) -> None:
    for found in yaml.safe_load_all(text):
        if isinstance(found, dict) and found.get("kind") == contract.JOB_KIND and ELISION not in text:
            _read_job(root, found)


def _read_job(root: Path, job: dict[str, Any]) -> None:
    """By the operator's own reader, and by the schema for the fields that only Kubernetes reads, such as those of a template."""
    if job.get("apiVersion") != contract.API_VERSION:
        raise InvalidInput(f"apiVersion {job.get('apiVersion')!r}; right would be {contract.API_VERSION}")
    parse_job(job)
    if unknown := list(_unknown(job["spec"], _schema(root)["properties"]["spec"], "spec")):
        raise InvalidInput(f"{', '.join(unknown)}: the CRD has no such field")


@cache
def _schema(root: Path) -> dict[str, Any]:
    crd = yaml.load((root / _CRD).read_text(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    schema: dict[str, Any] = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return schema


def _unknown(value: Any, schema: dict[str, Any], path: str) -> Iterator[str]:
    """Paths of fields that a structural schema does not have, which the API server would drop or refuse."""
    if isinstance(value, list):
        for number, item in enumerate(value):
            yield from _unknown(item, schema.get("items", {}), f"{path}[{number}]")
    elif isinstance(value, dict) and "properties" in schema:
        for name, inner in value.items():
            known = schema["properties"].get(name)
            yield from [f"{path}.{name}"] if known is None else _unknown(inner, known, f"{path}.{name}")


def _read_sh(root: Path, text: str) -> None:
    done = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ValueError(done.stderr)


_READERS: Final[dict[str, Callable[[Path, str], object]]] = {
    "yaml": _read_yaml,
    "json": lambda _, text: json.loads(text),
    "toml": lambda _, text: tomllib.loads(text),
    "sh": _read_sh,
    "python": lambda _, text: ast.parse(text),
}
