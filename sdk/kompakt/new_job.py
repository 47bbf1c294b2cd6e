"""TrainingJobs that are to be made: from an image and a command; and whether the operator would take a manifest."""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from kompakt.models.spec import ActivationCompressionDict
from kompakt_core import contract
from kompakt_core.errors import InvalidInput
from kompakt_core.job import template_rules
from kompakt_core.job.spec import parse_job
from kompakt_core.schema.words import FieldError

Document = dict[str, Any]
ROLE, CONTAINER = "worker", "trainer"


@dataclass(frozen=True, slots=True)
class NewJob:
    """A job by options: equal workers, each with one container that runs `command`.

    `target`: its targetGradientError, or all of activationCompression.
    """

    name: str
    image: str
    command: Sequence[str] = ()
    workers: int = 1
    gpus: int = 1
    pattern: str = ""
    target: str | float | ActivationCompressionDict = ""
    env: Mapping[str, str] = field(default_factory=dict)

    def document(self) -> Document:
        """Its manifest; what is not said is left to the resource's defaults. Raises InvalidInput for a command of one text."""
        if isinstance(self.command, str):
            raise InvalidInput(f"the command is a list of words, such as ['python', 'train.py']; got {self.command!r}")
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
        if self.target != "":
            spec["activationCompression"] = _compression(self.target)
        return manifest_of(self.name, spec)


def manifest_of(name: str, spec: Mapping[str, Any]) -> Document:
    """The manifest of a job with that spec."""
    return {"apiVersion": contract.API_VERSION, "kind": contract.JOB_KIND, "metadata": {"name": name}, "spec": spec}


def _compression(target: str | float | ActivationCompressionDict) -> Document:
    if isinstance(target, Mapping):
        return deepcopy(dict(target))
    text = target if isinstance(target, str) else f"{Decimal(str(target)):f}"  # the resource takes digits, never an exponent
    return {"mode": "ErrorBounded", "targetGradientError": text}


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
