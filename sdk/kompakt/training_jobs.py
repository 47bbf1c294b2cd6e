"""TrainingJobs, the pods that they make and the logs of these, as an API server has them."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import quote

from kompakt.errors import JobExists, JobNotFound, JobRefused, NoAnswer
from kompakt_core import contract
from kompakt_core.contract import job_owner, worker_labels
from kompakt_core.contract.job_owner import JobOwner
from kompakt_core.errors import InvalidInput

if TYPE_CHECKING:
    from kompakt_client.errors import ApiError
    from kompakt_client.transport import ApiClient, LineStream

DELETIONS: Final = 10  # tries to delete a job whose status may be written in between
SILENCE_SECONDS: Final = 300.0  # a log that says nothing for so long is asked for anew: its connection may be dead
PAGE: Final = 500
Document = dict[str, Any]
_Got = TypeVar("_Got")


class TrainingJobs:
    """The TrainingJobs of one namespace."""

    def __init__(self, api: "ApiClient", namespace: str) -> None:
        self._api, self.namespace = api, namespace
        at = f"namespaces/{quote(self.namespace, safe='')}"
        self._everywhere = f"/apis/{contract.GROUP}/{contract.VERSION}/{contract.JOB_PLURAL}"
        self._jobs = f"/apis/{contract.GROUP}/{contract.VERSION}/{at}/{contract.JOB_PLURAL}"
        self._pods = f"/api/v1/{at}/pods"

    def create(self, document: Document, *, dry_run: bool = False) -> Document:
        """The job as the API server has it then; with `dry_run` as it would have it. Raises InvalidInput with its words."""
        query: dict[str, str | int] = {"dryRun": "All"} if dry_run else {}
        return answered(lambda: self._created(document, query))

    def _created(self, document: Document, query: dict[str, str | int]) -> Document:
        from kompakt_client.errors import Conflict

        try:
            return self._api.create(self._jobs, document, fieldValidation="Strict", **query)
        except Conflict as error:
            if error.reason != "AlreadyExists":
                raise
            name = document["metadata"].get("name", "")
            raise JobExists(
                f"there is a TrainingJob {name} in namespace {self.namespace}: `kubectl apply` changes it, "
                f"`kubectl delete tj {name}` makes room for a new one",
                error.status,
            ) from None

    def get(self, name: str) -> Document:
        """The job of that name. Raises InvalidInput."""
        return answered(lambda: self._api.get(one_of(self._jobs, name)))

    def get_of(self, owner: JobOwner) -> Document:
        """That job, and none that somebody else has made under its name since. Raises JobNotFound, InvalidInput."""
        job = self.get(owner.name)
        if job["metadata"]["uid"] != owner.uid:
            raise JobNotFound(f"{owner.name}: the job was deleted, and another one made under its name")
        return job

    def every(self, everywhere: bool = False) -> list[Document]:
        """All jobs of the namespace, or of the cluster. Raises InvalidInput."""
        path = self._everywhere if everywhere else self._jobs
        items: list[Document] = []
        query: dict[str, str | int] = {"limit": PAGE}
        with in_words():
            while True:
                page = self._api.list(path, query)
                items += page.get("items") or ()
                if not (more := (page.get("metadata") or {}).get("continue")):
                    return items
                query["continue"] = more

    def annotate(self, name: str, key: str, value: str) -> None:
        """Set one annotation of a job. Raises InvalidInput."""
        body = {"metadata": {"annotations": {key: value}}}
        answered(lambda: self._api.merge(one_of(self._jobs, name), body))

    def delete(self, name: str, uid: str) -> None:
        """Delete that job, and none that somebody else has made under its name since. Raises InvalidInput."""
        answered(lambda: self._deleted(one_of(self._jobs, name), uid))

    def _deleted(self, path: str, uid: str) -> Document:
        from kompakt_client.errors import Conflict, NotFound

        for _ in range(DELETIONS):
            try:
                meta = self._api.get(path)["metadata"]
                return self._api.delete(path, uid, meta["resourceVersion"]) if meta["uid"] == uid else {}
            except NotFound:
                return {}
            except Conflict:
                continue
        raise Conflict("the TrainingJob was changed each time that it was to be deleted", HTTPStatus.CONFLICT)

    def pods(self, owner: JobOwner) -> list[Document]:
        """The job's pods. Pods of others may carry its labels, and are left out. Raises InvalidInput."""
        query = {"labelSelector": worker_labels.job_name_selector(owner.name)}
        found: Iterable[Document] = answered(lambda: self._api.list(self._pods, query)).get("items") or ()
        return [pod for pod in found if job_owner.readable(pod["metadata"]) == owner]

    def log(self, pod: str, query: dict[str, str | int]) -> "LineStream":
        """What a pod prints, as it comes. Raises an ApiError."""
        from kompakt_client.requests import ApiRequest

        # A server that was asked for text/plain alone would refuse with errors that cannot be read.
        return self._api.stream(ApiRequest("GET", f"{one_of(self._pods, pod)}/log", query, accept="*/*"), SILENCE_SECONDS)


def jobs_as_kubectl(kubeconfig: str | None, context: str | None, namespace: str | None) -> TrainingJobs:
    """The jobs that kubectl would show with these. Raises InvalidInput where no kubeconfig can be used."""
    from kompakt_client.transport import connect_as_kubectl

    try:
        api, default = connect_as_kubectl(kubeconfig, context)
    except InvalidInput as error:
        raise InvalidInput(f"no usable kubeconfig: {error}; name one with kubeconfig= or KUBECONFIG") from None
    return TrainingJobs(api, namespace or default)


def owner_of(job: Document) -> JobOwner:
    """By what the pods of a job are known."""
    meta = job["metadata"]
    return JobOwner(str(meta.get("namespace", "")), str(meta["name"]), str(meta["uid"]))


def one_of(path: str, name: str) -> str:
    """The path of one object. Raises InvalidInput for what is no name."""
    if "/" in name or name in ("", ".", ".."):
        raise InvalidInput(f"{name!r} is no name of a Kubernetes object")
    return f"{path}/{quote(name, safe='')}"


def answered(ask: Callable[[], _Got]) -> _Got:
    """What the API server answers. Raises InvalidInput with its own words."""
    with in_words():
        return ask()


@contextmanager
def in_words() -> Iterator[None]:
    """Errors of the client in there are raised as InvalidInput, in the API server's own words."""
    from kompakt_client.errors import ApiError

    try:
        yield
    except ApiError as error:
        raise _told(error) from None
    except UnicodeError as error:  # a token that is no text
        raise NoAnswer(f"the API server cannot be reached: {error}") from None


def _told(error: "ApiError") -> InvalidInput:
    from kompakt_client.errors import NotFound, Unreachable

    words = refusal(error.status, error.message)
    if isinstance(error, Unreachable):
        return NoAnswer(words)
    absent = isinstance(error, NotFound) and error.served
    return (JobNotFound if absent else JobRefused)(words, error.status)


def refusal(status: int, said: str) -> str:
    """One sentence about a request that was not done; without a status there was no answer."""
    if not status:
        return f"the API server cannot be reached: {said}"
    phrase = next((f" {one.phrase}" for one in HTTPStatus if one == status), "")
    return f"the API server: {status}{phrase}; {said[:300]}"
