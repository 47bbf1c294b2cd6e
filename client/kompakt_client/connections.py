"""Connections to the API server that a kubeconfig names, or whose service account this pod has."""

import os
import ssl
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import urllib3

from kompakt_client import kubeconfig
from kompakt_client.credentials import Credentials, Login, credentials_of
from kompakt_client.impersonation import Headers
from kompakt_client.kubeconfig import ACCOUNT_FOLDER, Access, Pem
from kompakt_client.kubeconfig_merge import KubeconfigFile, merged
from kompakt_client.proxies import proxy_for
from kompakt_core.errors import InvalidInput

CONNECTIONS: Final = 32
DEFAULT_KUBECONFIG: Final = "~/.kube/config"


class Endpoint:
    """Where requests go, over which connections, and the headers that say who asks. Safe to use from several threads."""

    def __init__(
        self,
        server: str,
        connect: Callable[[Pem, Pem], urllib3.PoolManager],
        credentials: Credentials,
        impersonation: Headers = (),
    ) -> None:
        """`connect` makes a pool of connections that show a client certificate (with its key)."""
        self.server, self._impersonation = server, impersonation
        self._connect, self._credentials = connect, credentials
        self._shown: tuple[Pem, Pem] | None = None
        self._pool = urllib3.PoolManager()

    def headers(self) -> urllib3.HTTPHeaderDict:
        """Made anew for each request: tokens are renewed while a process runs. One name may stand there several times."""
        found = urllib3.HTTPHeaderDict(self._credentials.headers())
        found.extend(self._impersonation)
        return found

    @property
    def pool(self) -> urllib3.PoolManager:
        """The connections; new ones after the certificate has changed."""
        wanted = self._credentials.certificate()
        if wanted != self._shown:
            self._pool, self._shown = self._connect(*wanted), wanted
        return self._pool

    def login(self) -> Login | None:
        """What requests of now are believed by. Raises Unreachable where there is nothing."""
        return self._credentials.login()

    def renew(self, refused: Login | None) -> bool:
        """The server does not believe us: get other credentials than `refused`. False where there are none to get."""
        return self._credentials.renew(refused)


def plain(server: str, headers: Mapping[str, str] | None = None, pool: urllib3.PoolManager | None = None) -> Endpoint:
    """An API server that asks for no certificate, as stand-ins and proxies are."""
    found = pool or urllib3.PoolManager(maxsize=CONNECTIONS)
    return Endpoint(server, lambda certificate, key: found, Credentials(headers))


def find(path: str | Path | None) -> Endpoint:
    """The API server of the kubeconfig at `path`; without one, of the cluster that this process runs in.

    Raises InvalidInput where neither can be used.
    """
    try:
        if not path:
            return opened(kubeconfig.in_pod(os.environ), Path("/"))
        return opened(kubeconfig.read(Path(path).read_text()), Path(path).absolute().parent)
    except (InvalidInput, OSError, ValueError) as error:
        raise InvalidInput(f"--kubeconfig {path}: {error}" if path else str(error)) from error


def find_as_kubectl(given: str | None = None, context: str | None = None) -> tuple[Endpoint, str]:
    """The API server that kubectl would ask, and the namespace that it would take: for commands that a person starts.

    The kubeconfigs `given`, else those of KUBECONFIG, else ~/.kube/config; where there is none, the cluster of this pod.
    Through the proxy that kubeconfig or environment name. Raises InvalidInput where nothing can be used.
    """
    try:
        access = _access_as_kubectl(given or "", context or "")
        access = replace(access, proxy=access.proxy or proxy_for(access.server, os.environ))
        return opened(access, Path("/")), access.namespace
    except (OSError, ValueError) as error:
        raise InvalidInput(str(error)) from error


def _access_as_kubectl(given: str, context: str) -> Access:
    listed = [Path(one).expanduser().absolute() for one in _listed(given).split(os.pathsep) if one]
    # Files that are not there are left out, as long as there is one.
    found = [path for path in listed if path.exists()] or (listed if given else [])
    if found:
        document = merged(KubeconfigFile(str(path), path.read_text()) for path in found)
        try:
            return kubeconfig.access_of(document, context, person=sys.stdin is not None and sys.stdin.isatty())
        except InvalidInput as error:
            raise InvalidInput(f"{os.pathsep.join(map(str, found))}: {error}") from None
    missing = f"there is no {' or '.join(map(str, listed))}"
    if context:
        raise InvalidInput(f"{missing}, where context {context!r} could stand")
    return _account(missing)


def _listed(given: str) -> str:
    return given or os.environ.get("KUBECONFIG", "").strip(os.pathsep) or DEFAULT_KUBECONFIG


def _account(missing: str) -> Access:
    """This pod's service account, in the pod's own namespace."""
    try:
        access = kubeconfig.in_pod(os.environ)
    except InvalidInput as error:
        raise InvalidInput(f"{missing}; {error}") from None
    namespace = Path(ACCOUNT_FOLDER, "namespace")
    return replace(access, namespace=namespace.read_text().strip()) if namespace.exists() else access


def opened(access: Access, folder: Path) -> Endpoint:
    """Raises InvalidInput, OSError or ValueError for files that are missing or wrong: at the start, not at the first request."""
    credentials = credentials_of(access, folder)

    # Only where there is one: before urllib3 2.8 connections without TLS do not know these.
    names = dict.fromkeys(("server_hostname", "assert_hostname"), access.server_name) if access.server_name else {}

    def connect(certificate: Pem, key: Pem) -> urllib3.PoolManager:
        context = _context(access, folder, certificate, key)
        return _pool(access.proxy, maxsize=CONNECTIONS, ssl_context=context, **names)

    endpoint = Endpoint(access.server, connect, credentials, access.impersonation)
    if access.program is None:  # else that program says who we are, once there is something to ask
        assert endpoint.pool is not None
    return endpoint


def _pool(proxy: str, **more: Any) -> urllib3.PoolManager:
    if not proxy:
        return urllib3.PoolManager(**more)
    login = urllib3.util.parse_url(proxy).auth
    headers = urllib3.make_headers(proxy_basic_auth=unquote(login)) if login else None
    return urllib3.ProxyManager(proxy, proxy_headers=headers, **more)


def _context(access: Access, folder: Path, certificate: Pem, key: Pem) -> ssl.SSLContext:
    authority = access.authority
    file = str(folder / authority.path) if authority.path else None
    context = ssl.create_default_context(cafile=file, cadata=authority.text or None)
    if not access.verify:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if certificate:
        # OpenSSL reads these two from files only.
        with tempfile.TemporaryDirectory() as private:
            context.load_cert_chain(_file(certificate, folder, private, "crt"), _file(key, folder, private, "key"))
    return context


def _file(pem: Pem, folder: Path, private: str, name: str) -> Path:
    if pem.path:
        return folder / pem.path
    path = Path(private, name)  # in a folder that only this user may enter
    path.write_text(pem.text)
    return path
