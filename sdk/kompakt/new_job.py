"""TrainingJobs that are to be made: from the files that somebody wrote, or from a few options and a command."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from kompakt_core import contract
from kompakt_core.errors import InvalidInput
from kompakt_core.job import template_rules
from kompakt_core.job.spec import parse_job
from kompakt_core.schema.words import FieldError

Document = dict[str, Any]
ROLE, CONTAINER = "worker", "trainer"


@dataclass(frozen=True, slots=True)
class NewJob:
    """A job by options: equal workers, each with one container that runs `command`."""

    name: str
    image: str
    command: Sequence[str] = ()
    workers: int = 1
    gpus: int = 1
    pattern: str = ""
    target: str = ""
    env: Mapping[str, str] = field(default_factory=dict)

    def document(self) -> Document:
        """Its manifest; what is not said is left to the defaults of the resource."""
        container: Document = {"name": CONTAINER, "image": self.image}
        if self.command:
            container["command"] = list(self.command)
        if self.env:
            container["env"] = [{"name": name, "value": value} for name, value in self.env.items()]
        container["securityContext"] = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
        pod = {"securityContext": {"seccompProfile": {"type": "RuntimeDefault"}}, "containers": [container]}
        role = {"name": ROLE, "replicas": self.workers, "gpusPerReplica": self.gpus, "template": {"spec": pod}}
        spec: Document = {"roles": [role]}
        if self.pattern:
            spec["communication"] = {"pattern": self.pattern}
        if self.target:
            spec["activationCompression"] = {"mode": "ErrorBounded", "targetGradientError": self.target}
        return {"apiVersion": contract.API_VERSION, "kind": contract.JOB_KIND, "metadata": {"name": self.name}, "spec": spec}


def read_jobs(paths: Iterable[str]) -> list[Document]:
    """The TrainingJobs of YAML or JSON files; - is standard input. Raises InvalidInput, also for jobs that would be refused."""
    return [job for path in paths for job in _jobs_of(path)]


def _jobs_of(path: str) -> list[Document]:
    where = "standard input" if path == "-" else path
    try:
        text = sys.stdin.read() if path == "-" else Path(path).read_text("utf-8")
        found = [one for one in yaml.safe_load_all(text) if one is not None]
    except (OSError, ValueError, yaml.YAMLError, RecursionError) as error:
        raise InvalidInput(f"{where}: {error}; give a file with TrainingJobs") from error
    for one in found:
        if not isinstance(one, dict) or one.get("kind") != contract.JOB_KIND:
            kind = one.get("kind", "an object without kind") if isinstance(one, dict) else type(one).__name__
            raise InvalidInput(f"{where}: {kind}; only TrainingJobs are submitted; `kubectl apply -f` takes any kind")
    if not found:
        raise InvalidInput(f"{where}: no object; give a file with TrainingJobs")
    return [checked(one, where) for one in found]


def checked(job: Document, where: str) -> Document:
    """The manifest as it is. Raises InvalidInput for a job that the operator would refuse, with a line for each wrong field."""
    meta = job.get("metadata")
    made = f"{meta['generateName']}x" if isinstance(meta, dict) and meta.get("generateName") else None
    named = {**job, "metadata": {"name": made, **meta}} if isinstance(meta, dict) and made else job
    try:
        template_rules.check(parse_job(named))
    except FieldError as error:
        raise InvalidInput(_each_wrong(where, error)) from None
    except InvalidInput as error:
        raise InvalidInput(f"{where}: {error}") from None
    return job


def _each_wrong(where: str, error: FieldError) -> str:
    lines = list(map(str, error.every))
    return f"{where}: {error}" if len(lines) == 1 else "\n  ".join([f"{where}: {len(lines)} fields are wrong:", *lines])


def in_namespace(job: Document, asked: str | None, default: str) -> str:
    """Where a job is made: where its manifest says, else as asked. Raises InvalidInput where the two differ."""
    written = job["metadata"].get("namespace")
    if written and asked and written != asked:
        raise InvalidInput(f"{job['metadata'].get('name')}: the manifest says namespace {written}, --namespace says {asked}")
    return str(written or asked or default)


def environment(pairs: Iterable[str]) -> dict[str, str]:
    """KEY=VALUE pairs. Raises InvalidInput for others."""
    found = dict(pair.partition("=")[::2] for pair in pairs)
    if wrong := next((pair for pair in pairs if "=" not in pair or pair.startswith("=")), None):
        raise InvalidInput(f"--env: {wrong!r}; right would be KEY=VALUE")
    return found
