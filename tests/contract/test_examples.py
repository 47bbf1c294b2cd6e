"""Jobs of examples/ are ones that the API server takes and the operator makes pods of; notebooks give what is saved in them."""

import contextlib
from pathlib import Path
from typing import Any

import pytest

from kompakt_core.job.model import CompressionMode
from kompakt_operator import render
from tests.support.crds import schema
from tests.support.examples import EXAMPLES, FRAMEWORKS, IN_THE_IMAGE, manifests, parsed
from tools import notebook

MANIFESTS = manifests()
NOTEBOOKS = sorted(EXAMPLES.glob("*/*.ipynb"))


def unknown(node: dict[str, Any], value: Any, path: str) -> list[str]:
    """Fields that the CRD's schema does not have, which the API server would drop or refuse."""
    if isinstance(value, list):
        return [found for item in value for found in unknown(node.get("items", {}), item, f"{path}[]")]
    if not isinstance(value, dict) or "properties" not in node:
        return []
    known = node["properties"]
    strange = [f"{path}.{key}" for key in value if key not in known]
    return strange + [found for key in value if key in known for found in unknown(known[key], value[key], f"{path}.{key}")]


@pytest.mark.parametrize("name", MANIFESTS)
def test_a_job_is_one_that_the_crd_and_the_operator_take(name: str) -> None:
    manifest = MANIFESTS[name]
    assert unknown(schema("trainingjobs", "spec"), manifest["spec"], "spec") == []
    job = parsed(manifest)
    assert render.checked(job) == ""
    role = job.roles[0]
    pod = render.pod(job, role, 0, 1, image="runtime")
    assert pod["spec"]["containers"][0]["resources"]["limits"]["kompakt.dev/gpu"] == str(role.gpus_per_replica)


def test_the_schema_is_looked_at_down_to_the_containers() -> None:
    template = {"spec": {"containers": [{"name": "a", "imag": "b"}]}}
    strange = unknown(schema("trainingjobs", "spec"), {"roles": [{"template": template}]}, "spec")
    assert strange == ["spec.roles[].template.spec.containers[].imag"]


def test_every_script_of_a_framework_has_a_job_that_compresses_and_runs_it() -> None:
    scripts = {path.name for path in FRAMEWORKS.glob("train_*.py")}
    run = set()
    for path in FRAMEWORKS.glob("job-*.yaml"):
        manifest = MANIFESTS[f"frameworks/{path.name}"]
        assert parsed(manifest).compression.mode is CompressionMode.ERROR_BOUNDED
        (container,) = manifest["spec"]["roles"][0]["template"]["spec"]["containers"]
        run.add(container["command"][-1].removeprefix(IN_THE_IMAGE))
    assert run == scripts
    assert "COPY train_*.py /app/" in (FRAMEWORKS / "Dockerfile").read_text("utf-8")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_gives_what_is_saved_in_it(path: Path) -> None:
    saved = notebook.read(path)
    with contextlib.chdir(path.parent):
        assert notebook.outputs(notebook.run(saved)) == notebook.outputs(saved), f"python -m tools.notebook {path} writes it anew"


def test_the_notebook_is_there_with_a_table_and_a_picture() -> None:
    (path,) = NOTEBOOKS
    kinds = [kind for cell in notebook.outputs(notebook.read(path)) for output in cell for kind in output.get("data", ["text"])]
    assert "image/svg+xml" in kinds
    assert "text" in kinds
