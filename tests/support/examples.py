"""Jobs of examples/, and what a worker of theirs runs."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from kompakt_core.contract import JOB_KIND
from kompakt_core.job.model import TrainingJob
from kompakt_core.job.spec import parse_job
from kompakt_operator import render

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
FRAMEWORKS = EXAMPLES / "frameworks"
IN_THE_IMAGE = "/app/"


def manifests() -> dict[str, dict[str, Any]]:
    """Every TrainingJob of the examples, by its path below examples/."""
    found = ((path, yaml.safe_load(path.read_text("utf-8"))) for path in sorted(EXAMPLES.glob("*/job*.yaml")))
    return {str(path.relative_to(EXAMPLES)): manifest for path, manifest in found if manifest["kind"] == JOB_KIND}


def parsed(manifest: dict[str, Any]) -> TrainingJob:
    """As the operator reads it from the API server."""
    return parse_job({**manifest, "metadata": {**manifest["metadata"], "namespace": "ml", "uid": "u"}})


@dataclass(frozen=True)
class Worker:
    """What rank 0's container is told: its command, with the script of this checkout, and its environment."""

    command: list[str]
    environ: dict[str, str]


def worker(name: str, port: int) -> Worker:
    """Of examples/frameworks/job-<name>.yaml. All processes of the gang are on this machine; torchrun starts them."""
    job = parsed(manifests()[f"frameworks/job-{name}.yaml"])
    pod = render.pod(job, job.roles[0], 0, 1, image="runtime")
    container = pod["spec"]["containers"][0]
    told = {variable["name"]: variable.get("value", "0") for variable in container["env"]}
    ours = {
        name: told[name] for name in told if name.startswith(("PET_", "MASTER_")) or name in ("RANK", "LOCAL_RANK", "WORLD_SIZE")
    }
    ours |= dict.fromkeys(("MASTER_ADDR", "PET_MASTER_ADDR"), "127.0.0.1")
    ours |= dict.fromkeys(("MASTER_PORT", "PET_MASTER_PORT"), str(port))
    ours |= {"PET_NNODES": "1", "PET_NPROC_PER_NODE": str(int(told["PET_NNODES"]) * int(told["PET_NPROC_PER_NODE"]))}
    return Worker([word.replace(IN_THE_IMAGE, f"{FRAMEWORKS}/") for word in container["command"]], ours)
