"""One TrainingJob, as a script or a notebook uses it. Every call blocks until it is done, and needs no event loop."""

import warnings
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from copy import deepcopy
from functools import cached_property
from typing import Any, Final, Self, cast

from kompakt.errors import JobFailed, JobNotFound
from kompakt.following import PAUSE_SECONDS, JobLogs, WatchedJob, every_rank, paused, until_now
from kompakt.job_logs import Line
from kompakt.models.spec import ActivationCompressionDict, TrainingJobSpecDict
from kompakt.models.status import CompressionStatusDict, TrainingJobStatusDict
from kompakt.new_job import Document, NewJob, checked, manifest_of
from kompakt.standing import told
from kompakt.training_jobs import TrainingJobs, jobs_as_kubectl, owner_of
from kompakt_core.contract.job_owner import JobOwner
from kompakt_core.errors import InvalidInput
from kompakt_core.job.phases import Phase

PATIENCE_SECONDS: Final = 300.0  # that the API server may be away while a job is waited for or followed


class TrainingJob:
    """A TrainingJob that is to be made, or one that is there: see `get`, `list` and `from_manifest`."""

    def __init__(
        self,
        name: str,
        image: str = "",
        command: Sequence[str] = (),
        *,
        workers: int = 1,
        gpus: int = 1,
        pattern: str = "",
        compression: str | float | ActivationCompressionDict = "",
        env: Mapping[str, str] | None = None,
        spec: TrainingJobSpecDict | None = None,
        labels: Mapping[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
        namespace: str | None = None,
        kubeconfig: str | None = None,
        context: str | None = None,
    ) -> None:
        """Equal workers that run `command` in `image`, each with so many `gpus`; or whatever `spec` says. Nothing is sent yet.

        `pattern`: how ranks talk, such as Ring. `compression`: the targetGradientError of compressed activations, a share of a
        step such as 0.01, or all of activationCompression. `namespace`: default is the kubeconfig's. `kubeconfig`, `context`:
        as kubectl chooses them, or the cluster of this pod.

        Raises InvalidInput where neither an image nor a spec is given, or a spec and what belongs into it.
        """
        options = NewJob(name, image, command, workers, gpus, pattern, compression, env or {})
        document = options.document() if spec is None else manifest_of(name, deepcopy(dict(spec)))
        if spec is None and not image:
            raise InvalidInput(f"TrainingJob {name}: give an image and a command, or a spec")
        if spec is not None and options != NewJob(name, ""):
            raise InvalidInput(
                f"TrainingJob {name}: image, command, workers, gpus, pattern, compression and env stand in the spec"
            )
        more = {"labels": dict(labels or {}), "annotations": dict(annotations or {})}
        document["metadata"] |= {key: value for key, value in more.items() if value}
        self._begin(document, namespace, kubeconfig, context)

    def _begin(self, document: Document, namespace: str | None, kubeconfig: str | None, context: str | None) -> Self:
        self._document = document
        self._asked, self._kubeconfig, self._context = namespace, kubeconfig, context
        self._made: JobOwner | None = None
        return self

    @classmethod
    def from_manifest(
        cls,
        manifest: Mapping[str, Any],
        *,
        namespace: str | None = None,
        kubeconfig: str | None = None,
        context: str | None = None,
    ) -> Self:
        """The job of a manifest that was read from YAML or JSON. Raises InvalidInput for what the operator would refuse."""
        document = checked(deepcopy(dict(manifest)), "the manifest")
        written = document["metadata"].get("namespace")
        if written and namespace and written != namespace:
            raise InvalidInput(f"the manifest says namespace {written}, the argument says {namespace}")
        if not document["metadata"].get("name"):
            raise InvalidInput("metadata.name: is required; generateName makes a new job each time, which nothing here knows")
        return cls.__new__(cls)._begin(document, written or namespace, kubeconfig, context)

    @classmethod
    def get(cls, name: str, namespace: str | None = None, *, kubeconfig: str | None = None, context: str | None = None) -> Self:
        """The job of that name in the cluster. Raises JobNotFound, JobRefused, NoAnswer, InvalidInput."""
        jobs = jobs_as_kubectl(kubeconfig, context, namespace)
        return cls._there(jobs.get(name), jobs.namespace, kubeconfig, context)

    @classmethod
    def _there(cls, document: Document, namespace: str, kubeconfig: str | None, context: str | None) -> Self:
        job = cls.__new__(cls)._begin(document, namespace, kubeconfig, context)
        job._made = owner_of(document)
        return job

    @property
    def name(self) -> str:
        """Name of the job."""
        return str(self._document["metadata"]["name"])

    @property
    def namespace(self) -> str:
        """Namespace of the job. Raises InvalidInput where no kubeconfig can be used."""
        return self._jobs.namespace

    def __repr__(self) -> str:
        """What is known without asking."""
        where = f", namespace={self._asked!r}" if self._asked else ""
        return f"TrainingJob({self.name!r}{where})"

    def manifest(self) -> dict[str, Any]:
        """The job as it is to be made, or as it was read: a copy, for `kubectl apply` or to look at."""
        return deepcopy(self._document)

    def submit(self, *, dry_run: bool = False) -> Self:
        """Make the job. With `dry_run` the API server checks it and makes none.

        Raises:
            InvalidInput: the operator would refuse the job; each wrong field has a line.
            JobExists: there is a job of that name.
            JobRefused: the API server refuses it, in its own words: a rule, a quota, a missing right.
            NoAnswer: it cannot be reached; the job may have been made.
        """
        document = self._jobs.create(checked(self._document, f"TrainingJob {self.name}"), dry_run=dry_run)
        if not dry_run:
            self._made = owner_of(document)
        return self

    def status(self) -> TrainingJobStatusDict:
        """What became of the job, as in the cluster. `phase` is absent until an operator has seen the job.

        Raises InvalidInput before the job was submitted; JobNotFound, JobRefused, NoAnswer.
        """
        return cast(TrainingJobStatusDict, self._read().get("status") or {})

    def summary(self) -> str:
        """Where the job stands and what it waits for, in one line. Raises as `status`."""
        return told(self._read())

    def report(self) -> CompressionStatusDict | None:
        """What compression saved (`status.compression`); None until a worker has reported. Raises as `status`."""
        return self.status().get("compression")

    def wait(self, timeout: float | None = None, *, on_change: Callable[[str], object] | None = None) -> TrainingJobStatusDict:
        """Until the job has succeeded; its last status. `timeout`: seconds; None: as long as it takes, suspended or not.

        `on_change` is given a line such as `digits: Running` whenever the job stands elsewhere: try `print`.

        Raises:
            JobFailed: the job failed; the message says why.
            TimeoutError: it is not over after `timeout`. It goes on; wait again.
            JobNotFound: it was deleted meanwhile.
            NoAnswer: the API server was away for five minutes.
        """
        pause = paused(
            timeout, lambda: f"{told(watched.job) if watched.job else self.name}: not over after {timeout:g} s; it goes on"
        )
        watched = WatchedJob(self._jobs, self._owner, sleep=pause, patience=PATIENCE_SECONDS)
        if on_change is not None:
            watched.on_change = lambda job: on_change(told(job))
        job = watched.ended()
        if job["status"]["phase"] == Phase.FAILED:
            raise JobFailed(told(job), job["status"])
        return cast(TrainingJobStatusDict, job["status"])

    def logs(
        self, *, follow: bool = False, ranks: Container[int] | None = None, tail: int | None = None, container: str = ""
    ) -> Iterator[Line]:
        """What the workers of the current attempt have printed, merged by time; lines of one moment by rank.

        `follow`: go on until the job is over, through all its attempts, with lines as they arrive; a connection that breaks is
        read on where it was. A log that cannot be read is a warning then. `ranks`: workers, numbered over all roles, such as
        `range(8)` or `{0, 3}`; default: all, at most 64 at a time. `tail`: only the last lines of each worker. `container`:
        default is the one with the GPUs.

        Raises, mostly with the first line: InvalidInput where no worker has begun to run (not with `follow`) or too many are
        chosen; JobNotFound, JobRefused, NoAnswer.
        """
        chosen = every_rank if ranks is None else ranks.__contains__
        if tail is not None and tail < 0:
            raise InvalidInput(f"tail: a number of lines from 0 up; got {tail}")
        if not follow:
            return until_now(self._jobs, self._read(), container, chosen, tail)
        logs = JobLogs(self._jobs, container, chosen)
        return WatchedJob(self._jobs, self._owner, logs, tail, on_trouble=_warned, patience=PATIENCE_SECONDS).lines()

    def delete(self, *, wait: bool = False, timeout: float = 300.0) -> None:
        """Delete the job and its pods; nothing where it is gone already. A job that somebody made under its name since stays.

        `wait`: until job and pods are gone, so that its GPUs are free; at most `timeout` seconds.

        Raises TimeoutError; InvalidInput before the job was submitted; JobRefused, NoAnswer.
        """
        self._jobs.delete(self.name, self._owner.uid)
        pause = paused(timeout, lambda: f"{self.name}: the job or its pods are still there after {timeout:g} s")
        while wait and not self._gone():
            pause(PAUSE_SECONDS)

    def _gone(self) -> bool:
        try:
            self._read()
        except JobNotFound:
            return not self._jobs.pods(self._owner)
        return False

    @cached_property
    def _jobs(self) -> TrainingJobs:
        return jobs_as_kubectl(self._kubeconfig, self._context, self._asked)

    @property
    def _owner(self) -> JobOwner:
        if self._made is None:
            raise InvalidInput(f"TrainingJob {self.name} was not submitted: call submit(), or get(name) for one that is there")
        return self._made

    def _read(self) -> Document:
        return self._jobs.get_of(self._owner)

    # Last, since annotations below it could not say `list`.
    @classmethod
    def list(
        cls,
        namespace: str | None = None,
        *,
        everywhere: bool = False,
        kubeconfig: str | None = None,
        context: str | None = None,
    ) -> "tuple[Self, ...]":
        """All jobs of the namespace, with `everywhere` of the cluster. Raises JobRefused, NoAnswer, InvalidInput."""
        found = jobs_as_kubectl(kubeconfig, context, namespace).every(everywhere)
        return tuple(cls._there(one, one["metadata"]["namespace"], kubeconfig, context) for one in found)


def _warned(trouble: str) -> None:
    warnings.warn(trouble, stacklevel=2)
