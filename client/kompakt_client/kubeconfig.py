"""Which API server a kubeconfig or a pod's environment names, and by what one is believed there.

Text in, values out: the files that a kubeconfig names are the caller's to read.
Fields and what goes before what: https://kubernetes.io/docs/reference/config-api/kubeconfig.v1/
"""

import binascii
from base64 import b64decode
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from kompakt_client.impersonation import Headers, impersonation
from kompakt_client.object_fields import ObjectFields
from kompakt_client.proxies import EXPECTED, proxy_url
from kompakt_core.errors import InvalidInput
from kompakt_core.schema.words import shown

ACCOUNT_FOLDER: Final = "/var/run/secrets/kubernetes.io/serviceaccount"
LARGEST: Final = 10_000  # clusters, contexts or users in one file
_PROGRAMS_SETTINGS: Final = "client.authentication.k8s.io/exec"  # the extension of a cluster that is meant for login programs
_API_VERSIONS: Final = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")


@dataclass(frozen=True, slots=True)
class Pem:
    """A certificate or key: its text, or the path of its file; both empty where there is none."""

    text: str = ""
    path: str = ""

    def __bool__(self) -> bool:
        return bool(self.text or self.path)


@dataclass(frozen=True, slots=True)
class LoginProgram:
    """A program that logs in, as the field `exec` names it."""

    command: str
    api_version: str
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    install_hint: str = ""
    cluster_info: Mapping[str, Any] = field(default_factory=dict)  # {"cluster": ...} where the program wants to know
    interactive: bool = False  # it may ask the person at this terminal


@dataclass(frozen=True, slots=True)
class Access:
    """One API server as seen by one user. Paths are relative to the folder of the kubeconfig."""

    server: str  # URL without a slash at its end
    authority: Pem = Pem()  # who signed the server's certificate; none: the system's authorities
    certificate: Pem = Pem()  # the client's own
    key: Pem = Pem()
    token: str = ""
    token_file: str = ""  # goes before `token`, and is read again for each request: its content is renewed
    server_name: str = ""  # what the server's certificate says, where that is not the URL's host
    verify: bool = True
    program: LoginProgram | None = None  # after both kinds of token
    namespace: str = "default"
    username: str = ""  # with its password: after everything else
    password: str = ""
    proxy: str = ""  # URL of an HTTP proxy; requests go through it
    impersonation: Headers = ()  # in whose name to ask, where that is somebody else


def in_pod(environment: Mapping[str, str], folder: str = ACCOUNT_FOLDER) -> Access:
    """What every pod with a service account is given: the server's address in its environment, token and authority as files.

    Raises InvalidInput outside a pod.
    """
    host, port = (environment.get(f"KUBERNETES_SERVICE_{name}", "") for name in ("HOST", "PORT"))
    if not (host and port):
        raise InvalidInput("not inside a cluster (KUBERNETES_SERVICE_HOST is not set), and no --kubeconfig was given")
    where = f"[{host}]" if ":" in host else host
    return Access(f"https://{where}:{port}", Pem(path=f"{folder}/ca.crt"), token_file=f"{folder}/token")


def read(text: str, name: str = "") -> Access:
    """The context of that name in a kubeconfig's text; without a name the current one. Raises as `access_of` does."""
    return access_of(parsed(text), name)


def access_of(document: object, name: str = "", *, person: bool = False) -> Access:
    """The context of that name in a kubeconfig; without a name the current one. `person`: one can be asked at a terminal.

    Raises InvalidInput naming the field: no kubeconfig, a name that leads nowhere, or a way to log in that is not known here.
    """
    top = ObjectFields(document, "")
    context = _named(top, "context", name or top.text("current-context"))
    cluster = _named(top, "cluster", context.text("cluster"))
    who = context.text("user", "")
    user = _named(top, "user", who) if who else ObjectFields({}, "user")
    if user.has("auth-provider"):
        user.refuse("auth-provider", "Kubernetes knows it no more; use exec, a token or a client certificate")
    user.raw("extensions", None)
    extensions = cluster.items("extensions", high=LARGEST)
    cluster.flag("disable-compression", False)
    found = Access(
        server=_server(cluster),
        authority=_pem(cluster, "certificate-authority"),
        certificate=_pem(user, "client-certificate"),
        key=_pem(user, "client-key"),
        token=user.text("token", ""),
        token_file=user.text("tokenFile", ""),
        server_name=cluster.text("tls-server-name", ""),
        verify=not cluster.flag("insecure-skip-tls-verify", False),
        program=_program(user.inner("exec"), cluster, extensions, person) if user.has("exec") else None,
        namespace=context.text("namespace", "") or "default",
        username=user.text("username", ""),
        password=user.text("password", ""),
        proxy=_proxy(cluster),
        impersonation=impersonation(user),
    )
    cluster.done()
    user.done()
    if bool(found.certificate) != bool(found.key):
        user.refuse("client-certificate" if found.key else "client-key", "is required beside its counterpart")
    if bool(found.username) != bool(found.password):
        user.refuse("username" if found.password else "password", "is required beside its counterpart")
    return found


def _program(fields: ObjectFields, cluster: ObjectFields, extensions: list[tuple[Any, str]], person: bool) -> LoginProgram:
    """Where nobody can be asked for anything, a program that must be interactive is refused."""
    version = fields.text("apiVersion")
    if version not in _API_VERSIONS:
        fields.refuse("apiVersion", f"expected {' or '.join(_API_VERSIONS)}, got {shown(version)}")
    mode = fields.text("interactiveMode", "IfAvailable")
    if mode == "Always" and not person:
        fields.refuse("interactiveMode", "this program must ask a person; use one that is Never or IfAvailable")
    found = LoginProgram(
        command=fields.text("command"),
        api_version=version,
        arguments=fields.texts("args", high=LARGEST),
        environment=dict(_variable(ObjectFields(item, path)) for item, path in fields.items("env", high=LARGEST)),
        install_hint=fields.text("installHint", ""),
        cluster_info=_cluster_info(cluster, extensions) if fields.flag("provideClusterInfo", False) else {},
        interactive=person and mode != "Never",
    )
    fields.done()
    return found


def _variable(fields: ObjectFields) -> tuple[str, str]:
    return fields.text("name"), fields.text("value")


def _cluster_info(cluster: ObjectFields, extensions: list[tuple[Any, str]]) -> Mapping[str, Any]:
    named = [ObjectFields(item, path) for item, path in extensions]
    settings = next((one.raw("extension", None) for one in named if one.text("name", "") == _PROGRAMS_SETTINGS), None)
    data = cluster.text("certificate-authority-data", "")
    name = cluster.text("tls-server-name", "")
    said = {"server": _server(cluster), "certificate-authority-data": data, "tls-server-name": name, "config": settings}
    return {"cluster": {key: value for key, value in said.items() if value}}


def parsed(text: str) -> object:
    """A kubeconfig's text as a document; None where it is empty. Raises InvalidInput where it is no YAML."""
    import yaml  # 15 ms to import; a pod has no kubeconfig

    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InvalidInput(f"no YAML: {' '.join(str(error).split())}") from None


def _named(top: ObjectFields, kind: str, name: str) -> ObjectFields:
    """The `kind` of that name in the list of its kind."""
    listed = [ObjectFields(item, path) for item, path in top.items(f"{kind}s", high=LARGEST)]
    names = [str(one.text("name", "")) for one in listed]
    if name not in names:
        top.refuse(f"{kind}s", f"none is called {shown(name)}; there are: {', '.join(names) or 'none'}")
    return listed[names.index(name)].inner(kind)


def _server(cluster: ObjectFields) -> str:
    server: str = cluster.text("server")
    if not server.startswith(("https://", "http://")):
        cluster.refuse("server", f"expected a URL such as https://10.0.0.1:6443, got {shown(server)}")
    return server.rstrip("/")


def _proxy(cluster: ObjectFields) -> str:
    url = cluster.text("proxy-url", "")
    try:
        return proxy_url(url, "proxy-url") if url else ""
    except InvalidInput:
        cluster.refuse("proxy-url", EXPECTED)


def _pem(fields: ObjectFields, name: str) -> Pem:
    """`NAME-data` goes before the file `NAME`."""
    path, data = fields.text(name, ""), fields.text(f"{name}-data", "")
    if not data:
        return Pem(path=path)
    try:
        return Pem(text=b64decode(data, validate=True).decode("ascii"))
    except (binascii.Error, ValueError):
        fields.refuse(f"{name}-data", "expected the base64 form of a PEM text")
