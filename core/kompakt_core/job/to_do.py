"""What there may be to do about a job, as values: `actions.next_actions` decides, and the operator performs."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kompakt_core.job.provisioning import Action as OfNodes
from kompakt_core.job.workload import Action as OfQueue


@dataclass(frozen=True, slots=True)
class WriteStatus:
    """Apply the operator's whole part of the status."""

    status: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class CreateService:
    """The headless Service of one attempt."""

    attempt: int


@dataclass(frozen=True, slots=True)
class TryPod:
    """Dry run of a role's first pod: the API server says what it thinks before anything exists."""

    role: str
    attempt: int


@dataclass(frozen=True, slots=True)
class AskForPlaces:
    """The same for all roles; what the API server answers goes to the status, where the planner finds it."""

    attempt: int


@dataclass(frozen=True, slots=True)
class CreatePod:
    """`index` counts within the role."""

    role: str
    index: int
    attempt: int


@dataclass(frozen=True, slots=True)
class DeletePod:
    """`version`: as the pod was judged. `grace`: seconds between SIGTERM and SIGKILL; None: as the pod says."""

    name: str
    uid: str
    version: int = 0
    grace: int | None = None


@dataclass(frozen=True, slots=True)
class DeleteService:
    name: str


@dataclass(frozen=True, slots=True)
class DeleteJob:
    """The job outlived ttlSecondsAfterFinished."""


@dataclass(frozen=True, slots=True)
class Wake:
    """Look again at this moment even if nothing happens."""

    at: float


Own = WriteStatus | CreateService | TryPod | AskForPlaces | CreatePod | DeletePod | DeleteService | DeleteJob | Wake
Action = Own | OfQueue | OfNodes
