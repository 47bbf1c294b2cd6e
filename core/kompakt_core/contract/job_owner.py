"""To which TrainingJob an object belongs: to its controller, as ownerReferences name it. Labels only find candidates.

Anybody may give any label to objects of their own, while an owner is what Kubernetes' garbage collector goes by: an object of
the same namespace, of that kind and name, and with that uid.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kompakt_core import contract
from kompakt_core.contract import worker_labels


@dataclass(frozen=True, slots=True)
class JobOwner:
    """One TrainingJob, and no other before or after it of that name."""

    namespace: str
    name: str
    uid: str


def encode(owner: JobOwner) -> dict[str, Any]:
    """The ownerReference of an object in the job's namespace."""
    return {
        "apiVersion": contract.API_VERSION,
        "kind": contract.JOB_KIND,
        "name": owner.name,
        "uid": owner.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def readable(metadata: Mapping[str, Any]) -> JobOwner | None:
    """Of an object's metadata; None for an object that belongs to no TrainingJob."""
    namespace = str(metadata.get("namespace", ""))
    return referred(namespace, metadata.get("labels") or {}, metadata.get("ownerReferences") or ())


def referred(namespace: str, labels: Mapping[str, str], references: Iterable[Mapping[str, Any]]) -> JobOwner | None:
    """The same of its parts.

    None also where the label names another job than the controller is: whoever looks by label would find the object with that
    one, and count it for the other.
    """
    if not (uid := worker_labels.job_uid(labels)):
        return None
    names = (str(one.get("name", "")) for one in references if _is_job(one) and one.get("uid") == uid)
    return next((JobOwner(namespace, name, uid) for name in names), None)


def _is_job(reference: Mapping[str, Any]) -> bool:
    """Whether it names a TrainingJob, of whatever version, as the controller."""
    group = str(reference.get("apiVersion", "")).partition("/")[0]
    return reference.get("controller") is True and (group, reference.get("kind")) == (contract.GROUP, contract.JOB_KIND)
