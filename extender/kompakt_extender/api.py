"""The API server as bytes in, bytes out."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import msgspec
import urllib3
from urllib3.exceptions import HTTPError

from kompakt_client.connections import Endpoint, find
from kompakt_core.errors import TryLater
from kompakt_extender.objects import StatusObject

# A write must be answered well before another scheduler could take the Lease over: see lease_observer.py.
WRITE_SECONDS = 4.0
CONNECT_SECONDS = 3.0
LIST_SECONDS = 60.0

JSON = "application/json"
JSON_PATCH = "application/json-patch+json"
APPLY = "application/apply-patch+yaml"  # JSON is YAML


class Expired(Exception):
    """The API server no longer knows the resourceVersion to watch from: everything must be listed again."""


@dataclass(frozen=True, slots=True)
class Answer:
    """HTTP status and body."""

    status: int
    body: bytes

    @property
    def ok(self) -> bool:
        return 200 <= self.status < 300

    @property
    def message(self) -> str:
        """The API server's own words."""
        try:
            return msgspec.json.decode(self.body, type=StatusObject).message or f"HTTP {self.status}"
        except msgspec.DecodeError:
            return f"HTTP {self.status}"


class Stream:
    """The lines of one watch; `stop` may be called from another thread."""

    def __init__(self, response: Any) -> None:
        self._response = response

    def batches(self) -> Iterator[list[bytes]]:
        """Complete lines as they arrive, several at a time when the server is quick."""
        rest = b""
        try:
            for chunk in self._response.stream(1 << 16):
                *lines, rest = (rest + chunk).split(b"\n")
                if lines := [line for line in lines if line]:
                    yield lines
        except (HTTPError, OSError, ValueError) as error:  # ValueError: closed by stop() while reading
            raise TryLater(f"watch broken: {error}", 1.0) from error
        finally:
            self._response.close()

    def stop(self) -> None:
        """End the watch at once, also when a read is blocked."""
        try:
            self._response.shutdown()
        except (ValueError, RuntimeError, OSError):
            self._response.close()


class Api:
    """One API server. Thread-safe, as urllib3's connection pool is."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str | int] | None = None,
        body: Any = None,
        content_type: str = JSON,
        seconds: float = WRITE_SECONDS,
    ) -> Answer:
        """One request with its whole answer.

        Raises:
            TryLater: no answer, or the server's own trouble (429, 5xx). Whether a write happened is then unknown.
        """
        response = self._open(method, path, query, body, content_type, seconds)
        try:
            answer = Answer(response.status, response.read())
        except (HTTPError, OSError) as error:
            raise TryLater(f"{method} {path}: answer cut off: {error}", 1.0) from error
        finally:
            response.release_conn()
        if answer.status == 429 or answer.status >= 500:
            raise TryLater(f"{method} {path}: {answer.message}", 1.0)
        return answer

    def watch(self, path: str, query: Mapping[str, str | int], seconds: float) -> Stream:
        """Begin a watch; `seconds` without a byte end it.

        Raises:
            Expired: the resourceVersion is too old.
            TryLater: the server did not answer 200.
        """
        response = self._open("GET", path, {**query, "watch": "true"}, None, JSON, seconds)
        if response.status != 200:
            text = Answer(response.status, response.read()).message
            response.release_conn()
            if response.status == 410:
                raise Expired(text)
            raise TryLater(f"watch {path}: {text}", 1.0)
        return Stream(response)

    def _open(
        self, method: str, path: str, query: Mapping[str, str | int] | None, body: Any, content_type: str, seconds: float
    ) -> Any:
        url = self._endpoint.server + path + ("?" + urlencode(query) if query else "")
        try:
            return self._endpoint.pool.request(
                method,
                url,
                body=None if body is None else msgspec.json.encode(body),
                headers=self._headers(content_type),
                timeout=urllib3.Timeout(connect=CONNECT_SECONDS, read=seconds),
                preload_content=False,
                retries=False,
                redirect=False,
            )
        except (HTTPError, OSError) as error:
            raise TryLater(f"{method} {path}: {error}", 1.0) from error

    def _headers(self, content_type: str) -> dict[str, str]:
        return {"Accept": JSON, "Content-Type": content_type, "User-Agent": "kompakt-extender", **self._endpoint.headers()}


def load(kubeconfig: str | None) -> Api:
    """The API server that `kubeconfig` names; without one, the cluster this process runs in.

    Raises:
        InvalidInput: there is no such file, it is not a kubeconfig, or this process does not run in a cluster.
    """
    return Api(find(kubeconfig))
