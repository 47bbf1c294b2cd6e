"""The explain API as people reach it: through the API server's service proxy, with the rights of their kubeconfig."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from time import sleep
from typing import TYPE_CHECKING, Annotated, Any, Final
from urllib.parse import quote, urlencode

import typer

from kompakt_core.errors import InvalidInput

if TYPE_CHECKING:
    from kompakt_client.transport import ApiClient

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


def api_of(kubeconfig: str | None, context: str | None) -> tuple["ApiClient", str]:
    """The API server that kubectl would ask with these, and its namespace. Raises InvalidInput where none can be used."""
    from kompakt_client.transport import connect_as_kubectl  # 0.1 s: not for commands that need no cluster

    try:
        return connect_as_kubectl(kubeconfig, context)
    except InvalidInput as error:
        raise InvalidInput(f"no usable kubeconfig: {error}; name one with --kubeconfig or KUBECONFIG") from None


class Cluster:
    """One cluster's explain API."""

    def __init__(self, kubeconfig: str | None, context: str | None, namespace: str, service: str) -> None:
        """Read the kubeconfig. Raises InvalidInput where there is none or it cannot be used."""
        self._where = f"Service {service} in namespace {namespace}"
        self._path = f"/api/v1/namespaces/{quote(namespace, safe='')}/services/{quote(service, safe='')}:http/proxy/v1alpha1"
        self._api, self.namespace = api_of(kubeconfig, context)

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
        from kompakt_client.errors import ApiError
        from kompakt_client.requests import ApiRequest

        try:
            answer = self._api.answer(ApiRequest(method, f"{self._path}/{path}", body=body, seconds=_TIMEOUT_SECONDS))
        except (ApiError, ValueError) as error:  # ValueError: a token that is no text
            raise InvalidInput(f"the API server cannot be reached: {error}") from None
        return Reply(answer.status, _read(answer.body))


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
