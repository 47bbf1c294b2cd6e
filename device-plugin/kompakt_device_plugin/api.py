"""The Kubernetes API as plain JSON objects, over urllib3."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol
from urllib.parse import urlencode

import urllib3

from kompakt_client.connections import Endpoint, find
from kompakt_core import contract

Object = dict[str, Any]
Query = Mapping[str, str]
NO_QUERY: Final[Query] = {}

PODS: Final = "/api/v1/pods"
NODES: Final = "/api/v1/nodes"
SLICES: Final = "/apis/resource.k8s.io/v1/resourceslices"
TOPOLOGIES: Final = f"/apis/{contract.API_VERSION}/{contract.TOPOLOGY_PLURAL}"
_JSON: Final = "application/json"
_APPLY: Final = "application/apply-patch+yaml"
_MERGE: Final = "application/merge-patch+json"
_CONNECT_SECONDS: Final = 5.0
STREAM_SECONDS: Final = 270.0  # of silence on a watch; the server ends one after 240


class ApiException(Exception):
    """The API server answered with an error: its HTTP status, and its own words as `reason`."""

    def __init__(self, status: int = 0, reason: str = "") -> None:
        super().__init__(f"{status} {reason}")
        self.status, self.reason = status, reason


def pod_path(namespace: str, name: str) -> str:
    """Where one pod lives."""
    return f"/api/v1/namespaces/{namespace}/pods/{name}"


def status_code(error: Exception) -> int:
    """HTTP status of an API error; 0 where there was no answer."""
    return int(error.status or 0) if isinstance(error, ApiException) else 0


def explain(error: Exception) -> str:
    """An error of a request in one line."""
    said = f"{error.status} {error.reason}" if isinstance(error, ApiException) else f"{type(error).__name__}: {error}"
    return " ".join(said.split())[:500]


@dataclass(frozen=True, slots=True)
class Listing:
    """The objects of one list and the resourceVersion from which a watch goes on."""

    items: list[Object]
    resource_version: str


class Api(Protocol):
    """What kompakt's node agents ask of the API server. Every method raises ApiException for an answer that is an error."""

    def get(self, path: str) -> Object | None: ...
    def list(self, path: str, query: Query = NO_QUERY, *, timeout: float = 30.0) -> Listing: ...
    def watch(self, path: str, resource_version: str, query: Query = NO_QUERY) -> Iterator[Object]: ...
    def apply(self, path: str, body: Mapping[str, Any], *, manager: str) -> Object: ...
    def merge(self, path: str, body: Mapping[str, Any]) -> Object: ...
    def create(self, path: str, body: Mapping[str, Any]) -> Object: ...


class KubernetesApi:
    """Api over one connection pool. The official client would be twice as large as all the rest of the image."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint

    def get(self, path: str) -> Object | None:
        """The object, or None where there is none."""
        try:
            return self._json("GET", path)
        except ApiException as error:
            if error.status == 404:
                return None
            raise

    def list(self, path: str, query: Query = NO_QUERY, *, timeout: float = 30.0) -> Listing:
        """All objects under `path`; `query` holds selectors. `timeout` in seconds for the whole answer."""
        answer = self._json("GET", path, query=query, timeout=timeout)
        return Listing(answer.get("items") or [], str(answer["metadata"]["resourceVersion"]))

    def watch(self, path: str, resource_version: str, query: Query = NO_QUERY) -> Iterator[Object]:
        """Events {type, object} from `resource_version` on, until the server ends the stream (240 s)."""
        wanted = {
            "watch": "1",
            "resourceVersion": resource_version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": "240",
            **query,
        }
        response = self._call("GET", path, query=wanted, between=STREAM_SECONDS)
        try:
            yield from _events(response.stream(amt=None, decode_content=True))
        finally:
            response.close()
            response.release_conn()

    def apply(self, path: str, body: Mapping[str, Any], *, manager: str) -> Object:
        """Forced server-side apply: `body` holds every field that `manager` owns."""
        query = {"fieldManager": manager, "force": "true"}
        return self._json("PATCH", path, query=query, body=dict(body), kind=_APPLY)

    def merge(self, path: str, body: Mapping[str, Any]) -> Object:
        """JSON merge patch."""
        return self._json("PATCH", path, body=dict(body), kind=_MERGE)

    def create(self, path: str, body: Mapping[str, Any]) -> Object:
        """POST of a new object."""
        return self._json("POST", path, body=dict(body))

    def _json(self, method: str, path: str, **call: Any) -> Object:
        answer: Object = json.loads(self._call(method, path, **call).read())
        return answer

    def _call(
        self,
        method: str,
        path: str,
        *,
        query: Query = NO_QUERY,
        body: Any = None,
        kind: str = _JSON,
        timeout: float = 30.0,
        between: float | None = None,
    ) -> Any:
        """`timeout`: seconds until the answer is there; `between`: instead, the most between two parts of an answer."""
        limit = urllib3.Timeout(
            connect=min(_CONNECT_SECONDS, timeout), read=between or timeout, total=None if between else timeout
        )
        response = self._endpoint.pool.request(
            method,
            self._endpoint.server + path + (f"?{urlencode(query)}" if query else ""),
            body=None if body is None else json.dumps(body),
            headers={"Accept": _JSON, "Content-Type": kind, **self._endpoint.headers()},
            timeout=limit,
            preload_content=False,
            retries=False,
            redirect=False,
        )
        if not 200 <= response.status <= 299:
            raise ApiException(status=response.status, reason=_message(response.read()) or response.reason or "")
        return response


def connect(kubeconfig: str | None) -> KubernetesApi:
    """An Api by kubeconfig file, or with the pod's service account where none is named.

    Raises InvalidInput where neither can be used.
    """
    return KubernetesApi(find(kubeconfig))


def _events(chunks: Iterator[bytes]) -> Iterator[Object]:
    rest = b""
    for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        yield from (json.loads(line) for line in lines if line)


def _message(body: bytes | None) -> str:
    """The message of a Status object, the usual body of an error; empty where the body is something else."""
    try:
        status = json.loads(body or b"")
    except ValueError:
        return ""
    return str(status.get("message") or "") if isinstance(status, dict) else ""
