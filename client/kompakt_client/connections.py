"""Connections to the API server that a kubeconfig names, or whose service account this pod has."""

import os
import ssl
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import urllib3

from kompakt_client import kubeconfig
from kompakt_client.credentials import Credentials, credentials_of
from kompakt_client.kubeconfig import Access, Pem
from kompakt_core.errors import InvalidInput

CONNECTIONS: Final = 32


class Endpoint:
    """Where requests go, over which connections, and the headers that say who asks. Safe to use from several threads."""

    def __init__(self, server: str, connect: Callable[[Pem, Pem], urllib3.PoolManager], credentials: Credentials) -> None:
        """`connect` makes a pool of connections that show a client certificate (with its key)."""
        self.server = server
        self._connect, self._credentials = connect, credentials
        self._shown: tuple[Pem, Pem] | None = None
        self._pool = urllib3.PoolManager()

    def headers(self) -> Mapping[str, str]:
        """Made anew for each request: tokens are renewed while a process runs."""
        return self._credentials.headers()

    @property
    def pool(self) -> urllib3.PoolManager:
        """The connections; new ones after the certificate has changed."""
        wanted = self._credentials.certificate()
        if wanted != self._shown:
            self._pool, self._shown = self._connect(*wanted), wanted
        return self._pool

    def renew(self) -> bool:
        """The server does not believe us: get other credentials. False where there are none to get."""
        return self._credentials.renew()


def plain(server: str, headers: Mapping[str, str] | None = None, pool: urllib3.PoolManager | None = None) -> Endpoint:
    """An API server that asks for no certificate, as stand-ins and proxies are."""
    found = pool or urllib3.PoolManager(maxsize=CONNECTIONS)
    return Endpoint(server, lambda certificate, key: found, Credentials(headers))


def find(path: str | None) -> Endpoint:
    """The API server of the kubeconfig at `path`; without one, of the cluster that this process runs in.

    Raises InvalidInput where neither can be used.
    """
    try:
        if not path:
            return opened(kubeconfig.in_pod(os.environ), Path("/"))
        return opened(kubeconfig.read(Path(path).read_text()), Path(path).absolute().parent)
    except (InvalidInput, OSError, ValueError) as error:
        raise InvalidInput(f"--kubeconfig {path}: {error}" if path else str(error)) from error


def opened(access: Access, folder: Path) -> Endpoint:
    """Raises InvalidInput, OSError or ValueError for files that are missing or wrong: at the start, not at the first request."""
    credentials = credentials_of(access, folder)

    def connect(certificate: Pem, key: Pem) -> urllib3.PoolManager:
        return urllib3.PoolManager(
            maxsize=CONNECTIONS,
            ssl_context=_context(access, folder, certificate, key),
            server_hostname=access.server_name or None,
            assert_hostname=access.server_name or None,
        )

    endpoint = Endpoint(access.server, connect, credentials)
    if access.program is None:  # else that program says who we are, once there is something to ask
        assert endpoint.pool is not None
    return endpoint


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
