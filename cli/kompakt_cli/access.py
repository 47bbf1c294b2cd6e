"""The explain API as people reach it: through the API server's service proxy, with the rights of their kubeconfig.

That proxy does not say who asks. So the API server gives a token of a service account, for nobody but the explain API, to
whoever may have one, and that account's rights decide what is answered.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from time import monotonic, sleep
from typing import TYPE_CHECKING, Annotated, Any, Final
from urllib.parse import quote, urlencode

import typer

from kompakt_core.contract import TOKEN_AUDIENCE, TOKEN_HEADER
from kompakt_core.errors import InvalidInput

if TYPE_CHECKING:
    from kompakt.training_jobs import TrainingJobs
    from kompakt_client.requests import Answer as HttpAnswer
    from kompakt_client.transport import ApiClient, LineStream

TRIES: Final = 12  # a Service chooses at random among two replicas, and only one of them decides: 1 in 4,096 fails
_PAUSE_SECONDS: Final = 0.2
_TIMEOUT_SECONDS: Final = 30
TOKEN_SECONDS: Final = 600  # the least that the API server grants
TOKEN_RESERVE: Final = 120
_REREAD_SECONDS: Final = 60.0

Kubeconfig = Annotated[str | None, typer.Option(help="default: KUBECONFIG, else ~/.kube/config")]
Context = Annotated[str | None, typer.Option(help="of the kubeconfig (default: its current one)")]
Release = Annotated[str, typer.Option("--kompakt-namespace", help="where kompakt is installed")]
Service = Annotated[str, typer.Option(help="name of the explain API's Service there")]
Account = Annotated[
    str | None,
    typer.Option(metavar="NAMESPACE/NAME", help="service account in whose name to ask (default: kompakt-explain-reader)"),
]
TokenFile = Annotated[str | None, typer.Option(help="a token of audience kompakt.dev instead, such as a pod's own")]
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


def jobs_of(kubeconfig: str | None, context: str | None, namespace: str | None) -> "TrainingJobs":
    """The TrainingJobs of that namespace, else of the kubeconfig's. Raises InvalidInput where none can be used."""
    from kompakt.training_jobs import TrainingJobs

    api, default = api_of(kubeconfig, context)
    return TrainingJobs(api, namespace or default)


class Cluster:
    """One cluster's explain API."""

    def __init__(
        self,
        kubeconfig: str | None,
        context: str | None,
        namespace: str,
        service: str,
        account: str | None = None,
        token_file: str | None = None,
    ) -> None:
        """Read the kubeconfig. Raises InvalidInput where there is none or it cannot be used."""
        self._account = account or f"{namespace}/{service}-reader"
        self._token_file, self._token, self._token_until = token_file, "", 0.0
        self._asking_token = Lock()
        self._where = f"Service {service} in namespace {namespace}"
        self._service = f"/api/v1/namespaces/{quote(namespace, safe='')}/services/{quote(service, safe='')}:http/proxy"
        self._path = f"{self._service}/v1alpha1"
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
        token = self._fresh_token()
        for last in [*[False] * (TRIES - 1), True]:
            reply = self._send(method, f"{self._path}/{path}", body, {TOKEN_HEADER: token})
            if not (standby(reply) and not last):
                break
            sleep(_PAUSE_SECONDS)
        if reply.status != 200 or not isinstance(reply.body, dict):
            raise InvalidInput(complaint(reply, self._where))
        return reply.body

    def passed(self, method: str, path: str, body: bytes | None, silence: float) -> "LineStream | HttpAnswer":
        """The Service's own answer to a request of a browser: whole, or as it comes where it is an answer of 200.

        Raises InvalidInput where there is none. A token that is not taken any more is not sent again: a new one is.
        """
        answer = self._passed(method, path, body, silence)
        if getattr(answer, "status", 200) == 401 and path.startswith("/v1alpha1/"):
            self._token = ""
            answer = self._passed(method, path, body, silence)
        return answer

    def _passed(self, method: str, path: str, body: bytes | None, silence: float) -> "LineStream | HttpAnswer":
        from kompakt_client.errors import ApiError
        from kompakt_client.requests import ApiRequest

        headers = {TOKEN_HEADER: self._fresh_token()} if path.startswith("/v1alpha1/") else {}
        request = ApiRequest(method, f"{self._service}{path}", body=body, accept="*/*", for_proxied=headers)
        for last in [*[False] * (TRIES - 1), True]:
            try:
                answer = self._api.begin(request, silence)
            except ApiError as error:
                raise InvalidInput(f"the API server cannot be reached: {error}") from None
            if last or getattr(answer, "status", 200) != 503:
                break
            sleep(_PAUSE_SECONDS)
        return answer

    def _fresh_token(self) -> str:
        """A token that is good for two minutes more."""
        with self._asking_token:
            if not self._token or monotonic() >= self._token_until:
                self._token, lasts = self._new_token()
                self._token_until = monotonic() + lasts
            return self._token

    def _new_token(self) -> tuple[str, float]:
        """And for how many seconds it is taken as good. A file may get a new one; what is read from a pipe comes once."""
        if not self._token_file:
            return self._granted(), TOKEN_SECONDS - TOKEN_RESERVE
        return _read_token(self._token_file), _REREAD_SECONDS if Path(self._token_file).is_file() else math.inf

    def _granted(self) -> str:
        """A token of the account in whose name to ask. Raises InvalidInput."""
        namespace, slash, name = self._account.partition("/")
        if not (slash and namespace and name) or "/" in name:
            raise InvalidInput(f"--account: NAMESPACE/NAME of a service account; got {self._account!r}")
        path = f"/api/v1/namespaces/{quote(namespace, safe='')}/serviceaccounts/{quote(name, safe='')}/token"
        spec = {"audiences": [TOKEN_AUDIENCE], "expirationSeconds": TOKEN_SECONDS}
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        reply = self._send("POST", path, body, {})
        status = reply.body.get("status") if isinstance(reply.body, dict) else None
        if reply.status not in (200, 201) or not isinstance(status, dict) or not status.get("token"):
            raise InvalidInput(no_token(reply, self._account, self._where))
        return str(status["token"])

    def _send(self, method: str, path: str, body: dict[str, Any] | None, headers: Mapping[str, str]) -> Reply:
        from kompakt_client.errors import ApiError
        from kompakt_client.requests import ApiRequest

        try:
            answer = self._api.answer(ApiRequest(method, path, body=body, seconds=_TIMEOUT_SECONDS, for_proxied=headers))
        except (ApiError, ValueError) as error:  # ValueError: a token that is no text
            raise InvalidInput(f"the API server cannot be reached: {error}") from None
        return Reply(answer.status, _read(answer.body))


def _read_token(path: str) -> str:
    try:
        token = Path(path).read_text().strip()
    except (OSError, ValueError) as error:
        raise InvalidInput(f"--token-file: cannot read {path}: {getattr(error, 'strerror', None) or 'it is no text'}") from None
    if not token.isascii() or len(token.split()) != 1:
        raise InvalidInput(f"--token-file: {path} holds no token; right would be one line of letters and digits")
    return token


def _read(data: bytes) -> Any:
    try:
        return json.loads(data)
    except ValueError:
        return data.decode(errors="replace")


def standby(reply: Reply) -> bool:
    """Whether a replica answered that does not decide now: another one may."""
    return reply.status == 503 and isinstance(reply.body, dict) and "detail" in reply.body


def no_token(reply: Reply, account: str, where: str) -> str:
    """One sentence about a token that was not given."""
    if reply.status == 404:
        places = "name the place with --kompakt-namespace and --service, or another account with --account"
        return f"there is no service account {account} in whose name to ask the {where}: {places}"
    body = reply.body if isinstance(reply.body, dict) else {}
    said = str(body.get("message") or str(reply.body)[:200])
    advice = "ask for the right to create its tokens (chart value explain.readers), or name another with --account"
    return f"no token of the service account {account}: {said}; {advice}"


def complaint(reply: Reply, where: str) -> str:
    """One sentence about an answer that is no success: the API's own, or what the API server meant."""
    body = reply.body if isinstance(reply.body, dict) else {}
    if "detail" in body:
        more = "; name a service account that may with --account" if reply.status == 403 else ""
        return f"{body['detail']}{more}"
    said = str(body.get("message") or str(reply.body)[:200])
    if reply.status == 403:
        return f"{said}; ask for the right to use services/proxy of the {where} (chart value explain.readers)"
    if reply.status == 404:
        return f"there is no {where}: name the place with --kompakt-namespace and --service"
    if reply.status == 503:
        return f"the {where} is not there or has no replica that answers: {said}"
    return f"HTTP {reply.status} from the {where}: {said}"
