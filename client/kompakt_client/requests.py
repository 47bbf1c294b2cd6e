"""One request to the API server, and its answer, as values."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlencode

import msgspec

from kompakt_client.errors import ApiError, error_of

JSON: Final = "application/json"
JSON_PATCH: Final = "application/json-patch+json"
MERGE_PATCH: Final = "application/merge-patch+json"
APPLY: Final = "application/apply-patch+yaml"  # JSON is YAML
Object = dict[str, Any]
Query = Mapping[str, str | int]
NO_QUERY: Final[Query] = {}
CONNECT_SECONDS: Final = 5.0
SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """One request; `seconds` is the most that its answer may take, `connect_seconds` of these for the connection.

    An answer of more than `most_bytes` raises TooLong.
    """

    method: str
    path: str
    query: Query = field(default_factory=dict)
    body: Any = None
    content_type: str = JSON
    accept: str = JSON
    seconds: float = SECONDS
    connect_seconds: float = CONNECT_SECONDS
    for_proxied: Mapping[str, str] = field(default_factory=dict)  # headers for a Service behind the API server's proxy
    most_bytes: int | None = None

    @property
    def target(self) -> str:
        """Path and query as they stand in the request line."""
        return self.path + ("?" + urlencode(self.query) if self.query else "")

    @property
    def data(self) -> bytes | None:
        """The body as bytes."""
        return self.body if self.body is None or isinstance(self.body, bytes) else msgspec.json.encode(self.body)

    @property
    def headers(self) -> dict[str, str]:
        """All but the credentials."""
        kind = {} if self.body is None else {"Content-Type": self.content_type}
        return {"Accept": self.accept, **kind, **self.for_proxied}

    @property
    def repeatable(self) -> bool:
        """Whether to send it twice is as good as once, so that it may be repeated when nobody knows whether it was done."""
        return self.method in ("GET", "HEAD")


@dataclass(frozen=True, slots=True)
class Answer:
    """HTTP status, body and headers."""

    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether the request was done."""
        return 200 <= self.status < 300

    @property
    def error(self) -> ApiError | None:
        """The error that it stands for; None where it stands for none."""
        return error_of(self.status, self.body, self.headers)

    @property
    def message(self) -> str:
        """The API server's own words."""
        return self.error.message if self.error else ""


def deleting(path: str, uid: str, version: str, *, propagation: str = "Background", grace: int | None = None) -> ApiRequest:
    """DELETE of the object with that uid as it was in that version: Conflict where it was changed, or is another one.

    Who deletes by name alone may hit a successor, or an object that belongs to somebody else by now. `grace`: seconds; None:
    as the object says.
    """
    options: Object = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": propagation}
    options["preconditions"] = {"uid": uid, "resourceVersion": version}
    if grace is not None:
        options["gracePeriodSeconds"] = grace
    return ApiRequest("DELETE", path, body=options)


def applying(path: str, body: Mapping[str, Any], manager: str, **more: Any) -> ApiRequest:
    """Forced server-side apply: `body` holds every field that `manager` owns."""
    return ApiRequest("PATCH", path, {"fieldManager": manager, "force": "true"}, dict(body), APPLY, **more)
