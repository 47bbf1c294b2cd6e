"""What a request to the API server can end with, apart from an answer.

KompaktError
├── InvalidInput         the kubeconfig or a command line: see kompakt_core.errors
└── ApiError             carries the HTTP status, the reason of the Status object and the server's own words
    ├── Rejected         the server said no: nothing was done
    │   ├── NotFound     404: there is no such object; `served` is False where the API server knows no such kind
    │   ├── Conflict     409: it exists already, or is newer than what the request was made from; read it again
    │   ├── Invalid      400, 422 and every other status not named here: the request is wrong; repeating is useless
    │   ├── Forbidden    403: no right to do that, or a quota or an admission plugin says no
    │   └── Expired      410: that resourceVersion or page is no longer kept; list anew
    ├── Throttled        429: nothing happened; also a TryLater, `seconds` come from Retry-After
    └── Unreachable      no answer, 401, 408 or 5xx: also a TryLater; a write may have happened
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from kompakt_core.errors import KompaktError, TryLater

RETRY_SECONDS: Final = 1.0  # where the server does not say when to try again
LONGEST_RETRY_AFTER: Final = 60.0
_ROUTE_NOT_FOUND: Final = "404 page not found"  # the API server's whole answer about a kind that it does not serve


class ApiError(KompaktError):
    """The API server's error: `status` is the HTTP status (0: no answer), `reason` and `message` those of its Status object."""

    def __init__(self, message: str, status: int = 0, reason: str = "") -> None:
        Exception.__init__(self, message)  # not super(): that is TryLater's for some
        self.message, self.status, self.reason = message, status, reason


class Rejected(ApiError):
    """The server's no."""


class NotFound(Rejected):
    """404."""

    @property
    def served(self) -> bool:
        """Whether the kind exists, so that it is the object that does not."""
        return bool(self.reason)


class Conflict(Rejected):
    """409."""

    @property
    def exists(self) -> bool:
        """Whether an object of that name stands in the way."""
        return self.reason == "AlreadyExists"


class Invalid(Rejected):
    """400, 422 and others that blame the request."""


class Forbidden(Rejected):
    """403."""


class Expired(Rejected):
    """410."""


class _Later(ApiError, TryLater):
    """An ApiError after which trying again makes sense."""

    def __init__(self, message: str, status: int = 0, reason: str = "", seconds: float = RETRY_SECONDS) -> None:
        ApiError.__init__(self, message, status, reason)
        self.seconds = seconds


class Throttled(_Later):
    """429: surely not done."""


class Unreachable(_Later):
    """No answer, or the server's own trouble: perhaps done."""


class TooLong(ApiError):
    """The answer has more bytes than the request wanted to take; it was not read to its end."""


class StatusObject(msgspec.Struct):
    """The body of an API server's error."""

    code: int = 0
    reason: str = ""
    message: str = ""


_KINDS: Final[Mapping[int, type[Rejected]]] = {
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Expired,
}
_LATER: Final = (401, 408)  # credentials are renewed; the server gave the request up


def error_of(status: int, body: bytes, headers: Mapping[str, str] | None = None) -> ApiError | None:
    """The error that an answer stands for; None where it stands for none."""
    if 200 <= status < 300:
        return None
    said = status_object(body)
    message = said.message or f"HTTP {status}"
    if status == 429:
        return Throttled(message, status, said.reason, retry_after(headers or {}))
    if status in _LATER or status >= 500:
        return Unreachable(message, status, said.reason, retry_after(headers or {}))
    if body and decoded_status(body) is None and status not in (404, 410):  # of a proxy before it: no word on the request
        return Unreachable(message, status, said.reason, retry_after(headers or {}))
    return rejection(status, said.reason, message)


def rejection(status: int, reason: str, message: str) -> Rejected:
    """The server's no with that status."""
    return _KINDS.get(status, Invalid)(message, status, reason)


def status_object(body: bytes) -> StatusObject:
    """The Status object in a body; one without words where the body is something else."""
    words = "the API server knows no such kind of object" if _ROUTE_NOT_FOUND in shown(body) else ""
    return decoded_status(body) or StatusObject(message=words)


def decoded_status(body: bytes) -> StatusObject | None:
    """The same; None where the body is no JSON object."""
    try:
        return msgspec.json.decode(body, type=StatusObject)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def shown(body: bytes) -> str:
    """A body that is no Status object, as text."""
    return body[:200].decode(errors="replace").strip()


def retry_after(headers: Mapping[str, str]) -> float:
    """Seconds of the header Retry-After; a date or nonsense counts as none."""
    text = next((value for name, value in headers.items() if name.lower() == "retry-after"), "").strip()
    return min(float(text), LONGEST_RETRY_AFTER) if text.isascii() and text.isdigit() and len(text) < 10 else RETRY_SECONDS


def explained(error: Exception) -> str:
    """An error in one line of a log."""
    said = f"{error.status} {error.reason} {error.message}" if isinstance(error, ApiError) and error.status else str(error)
    return " ".join(said.split())[:500] or type(error).__name__
