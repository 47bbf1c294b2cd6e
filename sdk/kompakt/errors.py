"""The errors of the SDK.

KompaktError
├── InvalidInput         what was given is wrong: a field of the job, a name, the kubeconfig; also the base of those below
│   ├── JobRefused       the API server said no: `status` is its HTTP status
│   │   ├── JobExists    409: a job has that name already
│   │   └── JobNotFound  404: there is no such job, or no longer
│   └── NoAnswer         the API server could not be reached; trying again may help
└── JobFailed            the job that was waited for failed; carries its last status
"""

from collections.abc import Mapping
from typing import Any

from kompakt_core.errors import InvalidInput, KompaktError


class JobRefused(InvalidInput):
    """The API server said no, in its own words. `status`: its HTTP status, 0 where another one took the job's name."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class JobExists(JobRefused):
    """A job of that name is there already."""


class JobNotFound(JobRefused):
    """There is no such job, or no longer."""


class NoAnswer(InvalidInput):
    """The API server could not be reached."""


class JobFailed(KompaktError):
    """The job failed: the message says why. `job_status`: its status then, as in the cluster."""

    def __init__(self, message: str, job_status: Mapping[str, Any]) -> None:
        super().__init__(message)
        self.job_status = job_status
