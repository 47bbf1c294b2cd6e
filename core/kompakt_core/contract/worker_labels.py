"""Whose worker a pod is: the labels that the operator gives to the pods and Services of a TrainingJob."""

from collections.abc import Mapping
from dataclasses import dataclass

from kompakt_core import contract
from kompakt_core.contract import counts
from kompakt_core.errors import InvalidInput

Labels = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class AttemptLabels:
    """Of which attempt of which job an object is."""

    job_name: str
    job_uid: str
    attempt: int


@dataclass(frozen=True, slots=True)
class WorkerLabels:
    """A pod's part in its gang; `worker_index` counts over all roles."""

    attempt_of: AttemptLabels
    role: str
    worker_index: int


def encode_job(name: str, uid: str) -> dict[str, str]:
    """The labels of everything that belongs to a job."""
    return {contract.LABEL_JOB_NAME: name, contract.LABEL_JOB_UID: uid}


def encode_attempt(of: AttemptLabels) -> dict[str, str]:
    """The labels of everything that belongs to an attempt."""
    return encode_job(of.job_name, of.job_uid) | {contract.LABEL_ATTEMPT: counts.encode(of.attempt)}


def encode(worker: WorkerLabels) -> dict[str, str]:
    """The labels of a worker's pod."""
    own = {contract.LABEL_ROLE: worker.role, contract.LABEL_WORKER_INDEX: counts.encode(worker.worker_index)}
    return encode_attempt(worker.attempt_of) | own


def decode(labels: Labels) -> WorkerLabels:
    """Whose worker it is.

    Raises:
        InvalidInput: a label is missing, or holds what the operator never writes.
    """
    for key in (contract.LABEL_JOB_NAME, contract.LABEL_JOB_UID, contract.LABEL_ROLE):
        if not labels.get(key):
            raise InvalidInput(f"label {key} is missing; right would be one, as the operator writes on every worker")
    of = AttemptLabels(job_name(labels), job_uid(labels), _count(labels, contract.LABEL_ATTEMPT))
    return WorkerLabels(of, labels[contract.LABEL_ROLE], _count(labels, contract.LABEL_WORKER_INDEX))


def _count(labels: Labels, key: str) -> int:
    return counts.decode(labels.get(key), f"label {key}")


def job_name(labels: Labels) -> str:
    """The TrainingJob's name; empty for what belongs to none."""
    return labels.get(contract.LABEL_JOB_NAME, "")


def job_uid(labels: Labels) -> str:
    """The TrainingJob's uid; empty for what belongs to none."""
    return labels.get(contract.LABEL_JOB_UID, "")


def role(labels: Labels) -> str:
    """The role; empty where there is none."""
    return labels.get(contract.LABEL_ROLE, "")


def attempt(labels: Labels) -> int | None:
    """The attempt; None where there is none."""
    return counts.readable(labels.get(contract.LABEL_ATTEMPT))


def worker_index(labels: Labels) -> int | None:
    """The index over all roles; None where there is none."""
    return counts.readable(labels.get(contract.LABEL_WORKER_INDEX))


def numbered(labels: Labels, index: int) -> Labels:
    """The same with this index over all roles."""
    return {**labels, contract.LABEL_WORKER_INDEX: counts.encode(index)}


def attempt_selector(uid: str, number: int) -> dict[str, str]:
    """The labels by which the pods of one attempt are found."""
    return {contract.LABEL_JOB_UID: uid, contract.LABEL_ATTEMPT: counts.encode(number)}


def job_selector(uid: str) -> str:
    """The labelSelector for all that belongs to a job."""
    return f"{contract.LABEL_JOB_UID}={uid}"


def job_name_selector(name: str) -> str:
    """The labelSelector for all that belongs to jobs of a name."""
    return f"{contract.LABEL_JOB_NAME}={name}"
