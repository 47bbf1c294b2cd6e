"""The explain API as people reach it: through the API server's service proxy, with the rights of their kubeconfig."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from time import sleep
from typing import Annotated, Any, Final
from urllib.parse import quote, urlencode

import typer

from kompakt_core.errors import InvalidInput

TRIES: Final = 12  # a Service chooses at random among two replicas, and only one of them decides: 1 in 4,096 fails
_PAUSE_SECONDS: Final = 0.2
_TIMEOUT_SECONDS: Final = 30

Kubeconfig = Annotated[str | None, typer.Option(help="default: KUBECONFIG, else ~/.kube/config")]
Context = Annotated[str | None, typer.Option(help="of the kubeconfig (default: its current one)")]
Release = Annotated[str, typer.Option("--kompakt-namespace", help="where kompakt is installed")]
Service = Annotated[str, typer.Option(help="name of the explain API's Service there")]
DEFAULT_NAMESPACE: Final = "kompakt-system"
DEFAULT_SERVICE: Final = "kompakt-explain"


@dataclass(frozen=True, slots=True)
class Reply:
    """HTTP status, and the body as JSON or, where it is none, as text."""

    status: int
    body: Any


class Cluster:
    """One cluster's explain API."""

    def __init__(self, kubeconfig: str | None, context: str | None, namespace: str, service: str) -> None:
        """Read the kubeconfig. Raises InvalidInput where there is none or it cannot be used."""
        # Half a second to import: not for commands that need no cluster.
        import yaml
        from kubernetes import config

        self._where = f"Service {service} in namespace {namespace}"
        self._path = f"/api/v1/namespaces/{quote(namespace, safe='')}/services/{quote(service, safe='')}:http/proxy/v1alpha1"
        try:
            self._api = config.new_client_from_config(kubeconfig, context, client_configuration=_configuration())
            _, active = config.list_kube_config_contexts(config_file=kubeconfig)
        except (config.ConfigException, yaml.YAMLError, OSError, ValueError, TypeError, KeyError) as error:
            raise InvalidInput(f"no usable kubeconfig: {error}; name one with --kubeconfig or KUBECONFIG") from None
        self.namespace = str((active or {}).get("context", {}).get("namespace") or "default")

    def get(self, *parts: str, **query: Any) -> dict[str, Any]:
        """The answer to GET; raises InvalidInput with the server's sentence."""
        if wrong := [part for part in parts if "/" in part or part in ("", ".", "..")]:
            raise InvalidInput(f"{wrong[0]!r} is no name of a Kubernetes object")
        path = "/".join(quote(part, safe="") for part in parts)
        return self._ask("GET", f"{path}?{urlencode(query)}" if query else path, None)

    def post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to POST; raises InvalidInput with the server's sentence."""
        return self._ask("POST", path, dict(body))

    def _ask(self, method: str, path: str, body: dict[str, Any] | None) -> dict[str, Any]:
        for last in [*[False] * (TRIES - 1), True]:
            reply = self._send(method, path, body)
            if not (standby(reply) and not last):
                break
            sleep(_PAUSE_SECONDS)
        if reply.status != 200 or not isinstance(reply.body, dict):
            raise InvalidInput(complaint(reply, self._where))
        return reply.body

    def _send(self, method: str, path: str, body: dict[str, Any] | None) -> Reply:
        from kubernetes.client.exceptions import ApiException
        from urllib3.exceptions import HTTPError

        headers = {"Accept": "application/json", "Content-Type": "application/json"}
        request = self._api.param_serialize(
            method, f"{self._path}/{path}", header_params=headers, body=body, auth_settings=["BearerToken"]
        )
        try:
            response = self._api.call_api(*request, _request_timeout=_TIMEOUT_SECONDS)
            return Reply(response.status, _read(response.read()))
        except (HTTPError, ApiException, OSError) as error:
            raise InvalidInput(f"the API server cannot be reached: {error}") from None


def _configuration() -> Any:
    """urllib3 would itself ask a standby three times more, a second apart as its Retry-After says, before each of our tries."""
    from kubernetes.client import Configuration
    from urllib3 import Retry

    class OursExcepted(Retry):
        RETRY_AFTER_STATUS_CODES = Retry.RETRY_AFTER_STATUS_CODES - {503}

    found = Configuration()
    found.retries = OursExcepted(3)
    return found


def _read(data: bytes) -> Any:
    try:
        return json.loads(data)
    except ValueError:
        return data.decode(errors="replace")


def standby(reply: Reply) -> bool:
    """Whether a replica answered that does not decide now: another one may."""
    return reply.status == 503 and isinstance(reply.body, dict) and "detail" in reply.body


def complaint(reply: Reply, where: str) -> str:
    """One sentence about an answer that is no success: the API's own, or what the API server meant."""
    body = reply.body if isinstance(reply.body, dict) else {}
    if "detail" in body:
        return str(body["detail"])
    said = str(body.get("message") or str(reply.body)[:200])
    if reply.status == 403:
        return f"{said}; ask for the right to use services/proxy of the {where} (chart value explain.readers)"
    if reply.status == 404:
        return f"there is no {where}: name the place with --kompakt-namespace and --service"
    if reply.status == 503:
        return f"the {where} is not there or has no replica that answers: {said}"
    return f"HTTP {reply.status} from the {where}: {said}"
