"""Who asks a part of ours, by a token that the API server vouches for, and whether they may.

Only tokens of our own audience are taken (contract.TOKEN_AUDIENCE): whoever gets hold of one on its way can ask us, and nobody
else. No answer from the API server means no.
"""

import hashlib
import logging
import threading
import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeVar

from kompakt_client.errors import ApiError, explained
from kompakt_client.requests import ApiRequest, Object
from kompakt_core import contract

KEPT_SECONDS: Final = 10.0  # as long as the API server's own libraries keep them by default
MOST_KEPT: Final = 1024
AT_ONCE: Final = 4  # questions to the API server, whoever causes them
TURN_SECONDS: Final = 1.0
SECONDS: Final = 3.0  # the most that the API server may take
LONGEST_TOKEN: Final = 8192
_TOKENS: Final = "/apis/authentication.k8s.io/v1/tokenreviews"
_ACCESS: Final = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
log = logging.getLogger(__name__)
Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class AccessRefused(Exception):
    """The text says why, `status` is what HTTP calls it: 401 nobody known, 403 not allowed, 503 the API server does not say."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class Caller:
    """Somebody as the API server knows them."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()


@dataclass(frozen=True, slots=True)
class Action:
    """What somebody wants: `attributes` of a SubjectAccessReview, a resource's unless there is a `path` among them."""

    attributes: tuple[tuple[str, str], ...]

    @property
    def field(self) -> str:
        """Where they stand in the review."""
        return "nonResourceAttributes" if "path" in dict(self.attributes) else "resourceAttributes"

    def __str__(self) -> str:
        told = dict(self.attributes)
        if "path" in told:
            return f"{told['verb']} {told['path']}"
        where = f"namespace {told['namespace']}" if told.get("namespace") else "the whole cluster"
        return f"{told['verb']} {told['resource']}/{told['subresource']}.{told['group']} in {where}"


READ_METRICS: Final = Action((("path", "/metrics"), ("verb", "get")))


def explaining(resource: str, namespace: str = "") -> Action:
    """To be told about one of our kinds in a namespace, or in the whole cluster: a permission that names no object's content."""
    what = ("group", contract.GROUP), ("resource", resource), ("subresource", contract.SUBRESOURCE_EXPLAIN)
    return Action((("namespace", namespace), ("verb", "get"), *what))


class ReviewApi(Protocol):
    """What is needed of the API server."""

    def json(self, request: ApiRequest) -> Object: ...


class Reviews:
    """The API server's word on tokens and rights. May be asked from several threads."""

    def __init__(self, api: ReviewApi, clock: Callable[[], float] = time.monotonic) -> None:
        self._api = api
        self._turns = threading.BoundedSemaphore(AT_ONCE)
        self._callers = RecentAnswers[bytes, Caller](clock)
        self._allowed = RecentAnswers[tuple[Caller, Action], bool](clock)

    def admit(self, token: str, action: Action) -> Caller:
        """Whose token it is. Raises AccessRefused unless the API server knows them and lets them do that."""
        caller = self.caller(token)
        if not self.may(caller, action):
            raise AccessRefused(403, f"{caller.name} may not {action}")
        return caller

    def caller(self, token: str) -> Caller:
        """Whose token it is. Raises AccessRefused. Only those that are known are kept: a stranger cannot push them out."""
        if not 0 < len(token) <= LONGEST_TOKEN or not token.isascii():
            raise AccessRefused(401, f"send a token of audience {contract.TOKEN_AUDIENCE} in the header {contract.TOKEN_HEADER}")
        return self._callers.get(hashlib.sha256(token.encode()).digest(), lambda: self._reviewed(token))

    def may(self, caller: Caller, action: Action) -> bool:
        """Whether they are allowed to. Raises AccessRefused where the API server does not say."""
        return self._allowed.get((caller, action), lambda: self._access(caller, action))

    def _reviewed(self, token: str) -> Caller:
        status = self._asked(_TOKENS, "authentication.k8s.io/v1", {"token": token, "audiences": [contract.TOKEN_AUDIENCE]})
        user = _mapping(status.get("user"))
        # An API server that knows no audiences answers none: then the token may be meant for anybody.
        meant = contract.TOKEN_AUDIENCE in (status.get("audiences") or ())
        if status.get("authenticated") is not True or not meant or not user.get("username"):
            raise AccessRefused(401, f"the API server knows no such token of audience {contract.TOKEN_AUDIENCE}")
        extra = sorted((str(key), tuple(values)) for key, values in _mapping(user.get("extra")).items())
        return Caller(str(user["username"]), str(user.get("uid") or ""), tuple(user.get("groups") or ()), tuple(extra))

    def _access(self, caller: Caller, action: Action) -> bool:
        user = {"user": caller.name, "uid": caller.uid, "groups": caller.groups, "extra": dict(caller.extra)}
        spec = {**user, action.field: dict(action.attributes)}
        status = self._asked(_ACCESS, "authorization.k8s.io/v1", spec)
        return status.get("allowed") is True and status.get("denied") is not True

    def _asked(self, path: str, version: str, spec: Mapping[str, Any]) -> Mapping[str, Any]:
        """The status of a review."""
        kind = "TokenReview" if path == _TOKENS else "SubjectAccessReview"
        request = ApiRequest("POST", path, body={"apiVersion": version, "kind": kind, "spec": spec}, seconds=SECONDS)
        if not self._turns.acquire(timeout=TURN_SECONDS):
            raise AccessRefused(503, "too many ask at once who may ask; try again in a second")
        try:
            return _mapping(self._api.json(request).get("status"))
        except ApiError as error:
            log.warning("%s: %s", kind, explained(error))  # not for strangers: it names addresses
            raise AccessRefused(503, "the API server does not say who may ask; try again in a second") from error
        finally:
            self._turns.release()


class RecentAnswers(Generic[Key, Value]):
    """Answers of the last few seconds. What raises is not kept."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self._known: dict[Key, tuple[float, Value]] = {}

    def get(self, key: Key, ask: Callable[[], Value]) -> Value:
        """The answer known of late, else a new one."""
        with self._lock:
            known = self._known.get(key)
        if known is not None and self._clock() < known[0]:
            return known[1]
        until, value = self._clock() + KEPT_SECONDS, ask()
        with self._lock:
            if len(self._known) >= MOST_KEPT:
                self._known.clear()
            self._known[key] = until, value
        return value


def token_of(header: Callable[[str], str | None]) -> str:
    """The token of a request; "" without one. The API server's proxy takes Authorization away, so there is a header of ours."""
    word, _, token = (header("Authorization") or "").partition(" ")
    return (header(contract.TOKEN_HEADER) or (token if word.lower() == "bearer" else "")).strip()


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
