"""Connections to the API server that a kubeconfig names, or whose service account this pod has."""

import os
import ssl
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import urllib3

from kompakt_core import kubeconfig
from kompakt_core.errors import InvalidInput
from kompakt_core.kubeconfig import Access, Pem

CONNECTIONS: Final = 32


@dataclass(frozen=True, slots=True)
class Door:
    """Where requests go, over which connections, and the headers that say who asks; those are made anew for each request."""

    server: str
    pool: urllib3.PoolManager
    headers: Callable[[], Mapping[str, str]]


def find(path: str | None) -> Door:
    """The API server of the kubeconfig at `path`; without one, of the cluster that this process runs in.

    Raises InvalidInput where neither can be used.
    """
    try:
        if not path:
            return _opened(kubeconfig.in_pod(os.environ), Path("/"))
        return _opened(kubeconfig.read(Path(path).read_text()), Path(path).absolute().parent)
    except (InvalidInput, OSError, ValueError) as error:
        raise InvalidInput(f"--kubeconfig {path}: {error}" if path else str(error)) from error


def _opened(access: Access, folder: Path) -> Door:
    pool = urllib3.PoolManager(
        maxsize=CONNECTIONS,
        ssl_context=_context(access, folder),
        server_hostname=access.server_name or None,
        assert_hostname=access.server_name or None,
    )
    return Door(access.server, pool, _headers(access, folder))


def _context(access: Access, folder: Path) -> ssl.SSLContext:
    authority = access.authority
    file = str(folder / authority.path) if authority.path else None
    context = ssl.create_default_context(cafile=file, cadata=authority.text or None)
    if not access.verify:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if access.certificate:
        # OpenSSL reads these two from files only.
        with tempfile.TemporaryDirectory() as private:
            texts = (_file(access.certificate, folder, private, "crt"), _file(access.key, folder, private, "key"))
            context.load_cert_chain(*texts)
    return context


def _file(pem: Pem, folder: Path, private: str, name: str) -> Path:
    if pem.path:
        return folder / pem.path
    path = Path(private, name)  # in a folder that only this user may enter
    path.write_text(pem.text)
    return path


def _headers(access: Access, folder: Path) -> Callable[[], Mapping[str, str]]:
    if access.token_file:
        token = folder / access.token_file
        token.read_text()  # missing: said at the start, not at the first request
        return lambda: {"Authorization": f"Bearer {token.read_text().strip()}"}
    return lambda: {"Authorization": f"Bearer {access.token}"} if access.token else {}
