"""The API server as bytes in, bytes out, over urllib3's pool of connections: safe to use from several threads."""

import random
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import urllib3
from urllib3.exceptions import ConnectTimeoutError, HTTPError, NewConnectionError

from kompakt_client.backoff import Backoff
from kompakt_client.connections import Endpoint, find, find_as_kubectl
from kompakt_client.errors import ApiError, Throttled, TooLong, Unreachable
from kompakt_client.requests import MERGE_PATCH, NO_QUERY, Answer, ApiRequest, Object, Query, applying, deleting

TRIES: Final = 3  # of a request that may be repeated
UNAUTHORIZED: Final = 401
_CHUNK: Final = 1 << 16
_BACKOFF: Final = Backoff(0.2, 2.0)
LONGEST_SLEEP: Final = 5.0  # seconds before a repetition; a longer Retry-After is for the caller to keep
_NOT_SENT: Final = (NewConnectionError, ConnectTimeoutError)


class LineStream:
    """The lines of a watch or a log; `stop` may be called from another thread."""

    def __init__(self, response: Any) -> None:
        self._response = response

    def batches(self, *, unfinished: bool = False) -> Iterator[list[bytes]]:
        """Complete lines as they arrive, several at a time when the server is quick. Raises Unreachable when it breaks.

        `unfinished`: a last line without its end counts as well, as a program may leave one in its log.
        """
        rest = b""
        for chunk in self.chunks():
            *lines, rest = (rest + chunk).split(b"\n")
            if lines := [line for line in lines if line]:
                yield lines
        if rest and unfinished:
            yield [rest]

    @property
    def content_type(self) -> str:
        """As the server named it; empty where it did not."""
        return str(self._response.headers.get("Content-Type") or "")

    def chunks(self) -> Iterator[bytes]:
        """The bytes as they arrive. Raises Unreachable when it breaks."""
        try:
            yield from self._response.stream(_CHUNK)
        except (HTTPError, OSError, ValueError) as error:  # ValueError: closed by stop() while reading
            raise Unreachable(f"stream broken: {error}") from error
        finally:
            self._response.close()

    def stop(self) -> None:
        """End the watch at once, also when a read is blocked."""
        try:
            self._response.shutdown()
        except (ValueError, RuntimeError, OSError):
            self._response.close()


class ApiClient:
    """One API server."""

    def __init__(
        self,
        endpoint: Endpoint,
        agent: str = "kompakt",
        *,
        random: Callable[[], float] = random.random,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._endpoint, self._agent = endpoint, agent
        self._random, self._sleep, self._clock = random, sleep, clock

    def exchange(self, request: ApiRequest) -> Answer:
        """One request with its whole answer, tried once (twice where the credentials had run out).

        Raises Throttled or Unreachable where there is no answer to the question; every other one is returned.
        """
        answer = self.answer(request)
        error = answer.error
        if isinstance(error, Throttled | Unreachable):
            raise type(error)(f"{request.method} {request.path}: {error.message}", error.status, error.reason, error.seconds)
        return answer

    def answer(self, request: ApiRequest) -> Answer:
        """As `exchange`, but every answer is returned, 5xx too: a proxied Service may mean something by it.

        Raises Unreachable where there is none.
        """
        login, answer = self._endpoint.login(), self._once(request)
        if answer.status == UNAUTHORIZED and self._endpoint.renew(login):
            answer = self._once(request)
        return answer

    def send(self, request: ApiRequest) -> bytes:
        """The body of the answer; tried three times where that is safe, within the request's seconds. Raises an ApiError."""
        until = self._clock() + request.seconds
        for failures in range(1, TRIES + 1):
            try:
                answer = self.exchange(request)
            except (Throttled, Unreachable) as error:
                pause = _BACKOFF.seconds(failures, error.seconds if error.status else 0.0, self._random)
                late = pause > LONGEST_SLEEP or self._clock() + pause > until
                if failures == TRIES or not may_repeat(request, error) or late:
                    raise
                self._sleep(pause)
                continue
            if (refused := answer.error) is not None:
                raise refused
            return answer.body
        raise AssertionError("unreachable")

    def watch(self, path: str, query: Query, silence: float) -> LineStream:
        """Begin a watch; `silence` seconds without a byte end it. Raises an ApiError (Expired: list anew)."""
        return self.stream(ApiRequest("GET", path, {**query, "watch": "true"}), silence)

    def stream(self, request: ApiRequest, silence: float) -> LineStream:
        """An answer as it comes, line by line; `silence` seconds without a byte end it. Raises an ApiError."""
        answer = self.begin(request, silence)
        if isinstance(answer, LineStream):
            return answer
        raise answer.error or Unreachable(f"{request.method} {request.path}: HTTP {answer.status}", answer.status)

    def begin(self, request: ApiRequest, silence: float) -> LineStream | Answer:
        """As `stream`, but every answer other than 200 is returned whole. Raises Unreachable where there is none."""
        login, response = self._endpoint.login(), self._open(request, silence)
        if response.status == 200:
            return LineStream(response)
        answer = _whole(response, request.path)
        if answer.status == UNAUTHORIZED:
            self._endpoint.renew(login)
        return answer

    def request(self, method: str, path: str, **more: Any) -> Answer:
        """`exchange` of an ApiRequest with these fields."""
        return self.exchange(ApiRequest(method, path, **more))

    # What most callers want: objects as dictionaries.

    def get(self, path: str, **query: str | int) -> Object:
        """One object. Raises an ApiError."""
        return self.json(ApiRequest("GET", path, query))

    def list(self, path: str, query: Query = NO_QUERY, *, seconds: float = 30.0) -> Object:
        """One page, or the whole list where no `limit` is in the query. Raises an ApiError."""
        return self.json(ApiRequest("GET", path, query, seconds=seconds))

    def create(self, path: str, body: Mapping[str, Any], **query: str | int) -> Object:
        """POST of a new object. Raises an ApiError."""
        return self.json(ApiRequest("POST", path, query, dict(body)))

    def apply(self, path: str, body: Mapping[str, Any], *, manager: str) -> Object:
        """Forced server-side apply. Raises an ApiError."""
        return self.json(applying(path, body, manager))

    def merge(self, path: str, body: Mapping[str, Any]) -> Object:
        """JSON merge patch. Raises an ApiError."""
        return self.json(ApiRequest("PATCH", path, body=dict(body), content_type=MERGE_PATCH))

    def update(self, path: str, body: Mapping[str, Any], **query: str | int) -> Object:
        """PUT: where `body` carries a resourceVersion, only if the object is unchanged. Raises an ApiError."""
        return self.json(ApiRequest("PUT", path, query, dict(body)))

    def delete(self, path: str, uid: str, version: str) -> Object:
        """DELETE of that object in that version; the answer is the object or a Status. Raises an ApiError."""
        return self.json(deleting(path, uid, version))

    def json(self, request: ApiRequest) -> Object:
        """The answer to any request as a dictionary. Raises an ApiError."""
        body = self.send(request)
        try:
            found = msgspec.json.decode(body or b"{}")
        except msgspec.DecodeError as error:
            raise Unreachable(f"{request.method} {request.path}: no JSON in the answer: {error}") from error
        return found if isinstance(found, dict) else {}

    def _once(self, request: ApiRequest) -> Answer:
        return _whole(self._open(request), f"{request.method} {request.path}", request.most_bytes)

    def _open(self, request: ApiRequest, silence: float | None = None) -> Any:
        """`silence`: instead of a whole answer within the request's seconds, the most between two parts of it."""
        connect = min(request.connect_seconds, request.seconds)
        try:
            return self._endpoint.pool.request(
                request.method,
                self._endpoint.server + request.target,
                body=request.data,
                headers=self._endpoint.headers() | {"User-Agent": self._agent, **request.headers},
                timeout=urllib3.Timeout(connect=connect, read=silence or request.seconds),
                preload_content=False,
                retries=False,
                redirect=False,
            )
        except _NOT_SENT as error:
            raise NotConnected(f"{request.method} {request.path}: {error}") from error
        except (HTTPError, OSError) as error:
            raise Unreachable(f"{request.method} {request.path}: {error}") from error


class NotConnected(Unreachable):
    """There was no connection, so nothing was sent: surely not done."""


def may_repeat(request: ApiRequest, error: ApiError) -> bool:
    """Whether the same request again can do no harm: it reads only, or the first one surely was not done."""
    return request.repeatable or isinstance(error, Throttled | NotConnected)


def _whole(response: Any, what: str, most_bytes: int | None = None) -> Answer:
    try:
        body = response.read() if most_bytes is None else response.read(most_bytes + 1)
        if most_bytes is not None and len(body) > most_bytes:
            response.close()  # the rest would be taken for the answer to the next request
            raise TooLong(f"{what}: more than {most_bytes} bytes")
        return Answer(response.status, body, response.headers)
    except (HTTPError, OSError) as error:
        raise Unreachable(f"{what}: answer cut off: {error}") from error
    finally:
        response.release_conn()


def connect_as_kubectl(kubeconfig: str | None, context: str | None, agent: str = "kompakt") -> tuple[ApiClient, str]:
    """The API server and namespace that kubectl would take with these. Raises InvalidInput where there is none to be used."""
    endpoint, namespace = find_as_kubectl(kubeconfig, context)
    return ApiClient(endpoint, agent), namespace


def connect(kubeconfig: str | Path | None, agent: str = "kompakt") -> ApiClient:
    """The API server that `kubeconfig` names; without one, of the cluster that this process runs in.

    Raises InvalidInput: there is no such file, it is not a kubeconfig, or this process does not run in a cluster.
    """
    return ApiClient(find(kubeconfig), agent)
