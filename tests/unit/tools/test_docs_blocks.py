"""What the check of code blocks finds, and what it lets pass."""

import subprocess
from pathlib import Path

import pytest

from tools.docs.blocks import block_problems, blocks_of
from tools.docs.repository import ROOT

JOB = """apiVersion: kompakt.dev/v1alpha1
kind: TrainingJob
metadata: {name: train}
spec:
  roles:
  - name: worker
    replicas: 2
    gpusPerReplica: 2
    template: {spec: {containers: [{name: trainer, image: "train:1"}]}}
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    (tmp_path / "crds").mkdir()
    (tmp_path / "crds/trainingjobs.yaml").symlink_to(ROOT / "crds/trainingjobs.yaml")
    return tmp_path


def problem_of(checkout: Path, language: str, text: str) -> str:
    (checkout / "page.md").write_text(f"# Page\n\n```{language}\n{text}\n```\n")
    return "\n".join(block_problems(checkout))


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("yaml", JOB),
        ("yaml", JOB.replace("spec: {containers", "...: {containers")),  # parts are left out
        ("yaml", "a: 1\n---\nb: [2]"),
        ("json", '{"a": 1}'),
        ("toml", "[a]\nb = 1"),
        ("sh", "for part in a b; do\n  echo $part\ndone"),
        ("python", "with torch.no_grad(): ...\nx = [*y]"),
        ("text", "{[("),
        ("console", "$ anything ("),
    ],
)
def test_a_block_that_can_be_read_is_no_problem(checkout: Path, language: str, text: str) -> None:
    assert problem_of(checkout, language, text) == ""


@pytest.mark.parametrize(
    ("language", "text", "problem"),
    [
        ("", "x", "page.md:3: a code block of language ''; right would be one of text, console, yaml,"),
        ("bash", "x", "page.md:3: a code block of language 'bash'"),
        ("yaml", "a: [", "page.md:3: a block of yaml that cannot be read: while parsing a flow node"),
        ("yaml", JOB.replace("replicas", "replica"), "spec.roles[0].replica"),
        ("yaml", JOB.replace("replicas: 2", "replicas: 0"), "spec.roles[0].replicas"),
        (
            "yaml",
            JOB.replace("image:", "picture:"),
            "spec.roles[0].template.spec.containers[0].picture: the CRD has no such field",
        ),
        ("yaml", JOB.replace("v1alpha1", "v1"), "apiVersion 'kompakt.dev/v1'; right would be kompakt.dev/v1alpha1"),
        ("json", "{'a': 1}", "a block of json that cannot be read: Expecting property name"),
        ("toml", "a = ", "a block of toml that cannot be read"),
        ("sh", "for part in a b; do", "a block of sh that cannot be read: bash: line 2: syntax error"),
        ("python", "def f(:", "a block of python that cannot be read: invalid syntax"),
    ],
)
def test_what_is_wrong_with_a_block_is_said_with_its_line(checkout: Path, language: str, text: str, problem: str) -> None:
    assert problem in problem_of(checkout, language, text)


def test_a_block_in_a_list_loses_its_indent() -> None:
    (block,) = blocks_of("page.md", "- a list:\n\n  ```python\n  if x:\n      y()\n  ```\n")
    assert (block.line, block.language, block.text) == (3, "python", "if x:\n    y()\n")
