"""The Kubernetes API as plain JSON objects, over urllib3."""

import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import urlencode

import urllib3
import yaml

from kompakt_core import contract
from kompakt_core.errors import InvalidInput

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
_CONNECTIONS: Final = 32
STREAM_SECONDS: Final = 270.0  # of silence on a watch; the server ends one after 240
SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")


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
    """Api over one connection pool. The official client's generated models would take as much memory as all the rest."""

    def __init__(self, server: str, pool: urllib3.PoolManager, headers: Callable[[], Mapping[str, str]]) -> None:
        """`headers` are asked for at every request: tokens are renewed while the process runs."""
        self._server, self._pool, self._headers = server, pool, headers

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
        response = self._pool.request(
            method,
            self._server + path + (f"?{urlencode(query)}" if query else ""),
            body=None if body is None else json.dumps(body),
            headers={"Accept": _JSON, "Content-Type": kind, **self._headers()},
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

    Raises InvalidInput where neither can be read.
    """
    return _from_file(kubeconfig) if kubeconfig else _from_pod(SERVICE_ACCOUNT, os.environ)


def _from_pod(folder: Path, environment: Mapping[str, str]) -> KubernetesApi:
    """What every pod is given: the server's address in its environment, token and authority as files."""
    host, port = (environment.get(f"KUBERNETES_SERVICE_{name}", "") for name in ("HOST", "PORT"))
    authority, token = folder / "ca.crt", folder / "token"
    if not (host and port and authority.is_file() and token.is_file()):
        raise InvalidInput(f"not inside a pod with a service account ({folder}), and no --kubeconfig was given")
    pool = urllib3.PoolManager(maxsize=_CONNECTIONS, cert_reqs="CERT_REQUIRED", ca_certs=str(authority))
    where = f"[{host}]" if ":" in host else host
    return KubernetesApi(f"https://{where}:{port}", pool, lambda: {"Authorization": f"Bearer {token.read_text().strip()}"})


def _from_file(kubeconfig: str) -> KubernetesApi:
    """By the official client, which knows all that a kubeconfig can hold; people and tests start the plugin like that."""
    from kubernetes import client, config

    configuration = client.Configuration()
    try:
        config.load_kube_config(kubeconfig, client_configuration=configuration)
    except (config.ConfigException, yaml.YAMLError, OSError, ValueError, TypeError, KeyError) as error:
        raise InvalidInput(f"--kubeconfig {kubeconfig}: {error}") from None
    configuration.connection_pool_maxsize = _CONNECTIONS

    def headers() -> Mapping[str, str]:
        settings = (one for one in configuration.auth_settings().values() if one["in"] == "header" and one["value"])
        return {one["key"]: one["value"] for one in settings}

    return KubernetesApi(configuration.host, client.ApiClient(configuration).rest_client.pool_manager, headers)


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
