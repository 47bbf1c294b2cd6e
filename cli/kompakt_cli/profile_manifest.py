"""From a TrainingJob's manifest to those of its measured runs: for a few steps one worker alone, or two halves on two nodes."""

import copy
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from kompakt_core import contract
from kompakt_core.errors import InvalidInput
from kompakt_core.job.model import Injection, Role, TrainingJob
from kompakt_core.job.spec import parse_job

LONGEST_NAME: Final = 25  # of the job, so that NAME-profile-MODE is at most 40 characters
MODES: Final = {"one": "synthetic", "all": "synthetic", "cold": "cold", "warm": "warm", "halves": "synthetic"}
SECOND: Final = "second-half"  # role of the worker on the other node
Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class StepLimits:
    """How each run is made. `limit_s`: from its creation to its end, waiting for GPUs included. `paths`: the data's files and
    folders in the container, if they are named.
    """

    warm_up: int
    steps: int
    limit_s: float
    paths: tuple[str, ...] = ()

    def modes(self, devices: int) -> list[str]:
        """The runs there are on so many GPUs, in order."""
        left_out = ({"one"} if devices == 1 else set()) | ({"halves"} if devices % 2 else set())
        return [mode for mode in MODES if mode not in left_out | (set() if self.paths else {"cold"})]

    def data(self, mode: str) -> str:
        """What the start-up hook is to do about data."""
        return "real" if mode == "warm" and not self.paths else MODES[mode]


def read_manifest(path: str) -> Document:
    """The one TrainingJob in a YAML or JSON file. Raises InvalidInput, also for a job that the operator would refuse."""
    try:
        found = [one for one in yaml.safe_load_all(Path(path).read_text("utf-8")) if one is not None]
    except (OSError, ValueError, yaml.YAMLError, RecursionError) as error:
        raise InvalidInput(f"--job {path}: {error}; give a file with a TrainingJob") from error
    jobs = [one for one in found if isinstance(one, dict) and one.get("kind") == contract.JOB_KIND]
    if len(jobs) != 1 or not isinstance(jobs[0].get("metadata"), dict):
        raise InvalidInput(f"--job {path}: {len(jobs)} objects of kind {contract.JOB_KIND}; expected one")
    _checked(jobs[0])
    return jobs[0]


def gpus_of(document: Document) -> tuple[int, int]:
    """GPUs of one worker, and of the whole job."""
    job = parse_job(document)
    return _role(job).gpus_per_replica, sum(role.replicas * role.gpus_per_replica for role in job.roles)


def _checked(document: Document) -> TrainingJob:
    job = parse_job(document)
    if job.injection is Injection.NEVER:
        raise InvalidInput("injection: Never: without the start-up hook nothing can be timed")
    if job.managed_by != contract.MANAGED_BY:
        raise InvalidInput(f"managedBy: {job.managed_by}: such a job is not run by kompakt")
    _role(job)
    return job


def _role(job: TrainingJob) -> Role:
    roles = [role for role in job.roles if role.gpus_per_replica]
    if len(roles) != 1:
        raise InvalidInput(f"{len(roles)} roles have GPUs; profile runs one worker alone and takes jobs with one such role")
    return roles[0]


def run_document(document: Document, mode: str, gpus: int, plan: StepLimits, node: str = "") -> Document:
    """The TrainingJob of one measured run: one worker with so many GPUs, as the job has it, without compression.

    For `halves` two such workers, one on `node` and one on any other.
    """
    job, spec = _checked(document), document["spec"]
    role = copy.deepcopy(next(one for one in spec["roles"] if one["name"] == _role(job).name))
    role |= {"replicas": 1, "gpusPerReplica": gpus}
    _ask_for_profile(container_of(role), f"{plan.data(mode)},{plan.warm_up},{plan.steps}", plan.paths)
    halves = [_placed(role, "In", node), _placed(role | {"name": SECOND}, "NotIn", node)]
    labels = document["metadata"].get("labels")
    return {
        "apiVersion": contract.API_VERSION,
        "kind": contract.JOB_KIND,
        "metadata": {
            "name": f"{job.name[:LONGEST_NAME].rstrip('-')}-profile-{mode}",
            **({"labels": labels} if labels else {}),
        },
        "spec": {
            "roles": halves if mode == "halves" else [role],
            # Where steps cannot be timed the run ends, and does not train on and on.
            "activationCompression": {"mode": "None", "failurePolicy": "Fail"},
            "injection": "Always",
            # Pods stay until their last words are read.
            "runPolicy": {"backoffLimit": 0, "activeDeadlineSeconds": max(1, int(plan.limit_s)), "cleanPodPolicy": "None"},
            **_kept(job, spec, mode),
        },
    }


def _kept(job: TrainingJob, spec: Document, mode: str) -> Document:
    """What else of the job's spec its runs have too."""
    kept = ["placement", "priorityClassName", "sharedMemory"]
    if job.communication.custom_edges is None:  # custom edges are for the job's own number of GPUs
        kept.append("communication")
    found = {name: copy.deepcopy(spec[name]) for name in kept if name in spec}
    if mode == "halves":  # they are to be spread
        found.get("placement", {}).pop("requiredLevel", None)
    return found


def _placed(role: Document, operator: str, node: str) -> Document:
    """The role with its pods on that node (In), or on any other (NotIn); what it asks of nodes stays."""
    role = copy.deepcopy(role)
    affinity = role["template"]["spec"].setdefault("affinity", {}).setdefault("nodeAffinity", {})
    required = affinity.setdefault("requiredDuringSchedulingIgnoredDuringExecution", {"nodeSelectorTerms": [{}]})
    for term in required["nodeSelectorTerms"]:  # any of them has to hold, with all that it asks for
        term.setdefault("matchFields", []).append({"key": "metadata.name", "operator": operator, "values": [node]})
    return role


def container_of(role: Document) -> Document:
    """The container that uses the GPUs."""
    containers = role["template"]["spec"]["containers"]
    found: Document = next((one for one in containers if one["name"] == role.get("gpuContainer")), containers[0])
    return found


def _ask_for_profile(container: Document, run: str, paths: Sequence[str]) -> None:
    """What the start-up hook reads."""
    ours = {contract.ENV_PROFILE: run, contract.ENV_PROFILE_DATA: json.dumps(paths)}
    kept = [one for one in container.get("env") or [] if one.get("name") not in ours]
    if all(one.get("name") != "OMP_NUM_THREADS" for one in kept):
        ours["OMP_NUM_THREADS"] = (
            "1"  # what torchrun sets for several processes, for one as well, or the two could not be compared
        )
    container["env"] = [*kept, *({"name": name, "value": value} for name, value in ours.items())]
