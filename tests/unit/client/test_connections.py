"""The API server is reached over real TLS, with every kind of credential."""

import base64
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import urllib3

from kompakt_client import connections, kubeconfig
from kompakt_core.errors import InvalidInput
from tests.support.client.kubeconfigs import write_kubeconfig
from tools.kube import pki


class Handler(BaseHTTPRequestHandler):
    """Answers who asked: the client certificate's name and the token."""

    def do_GET(self) -> None:
        subject = dict(pair for group in (self.connection.getpeercert() or {}).get("subject", ()) for pair in group)
        body = f"{subject.get('commonName')} {self.headers.get('Authorization')}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: Any) -> None:
        pass


class Quiet(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *arguments: Any) -> None:
        """A client that trusts nobody hangs up: that is what is tested."""


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> pki.Authority:
    return pki.new_authority(tmp_path_factory.mktemp("pki"))


@pytest.fixture(scope="module")
def address(authority: pki.Authority) -> Iterator[str]:
    """A TLS server known as `kubernetes`, not by its address."""
    signed = authority.server("server", "kubernetes", ["kubernetes"])
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(authority.certificate_file))
    context.verify_mode = ssl.CERT_OPTIONAL
    context.load_cert_chain(signed.certificate, signed.key)
    server = Quiet(("127.0.0.1", 0), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    yield f"https://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def config(folder: Path, server: str, cluster: dict[str, Any], user: dict[str, Any]) -> str:
    """A kubeconfig file in `folder` for a server that calls itself `kubernetes`."""
    return str(write_kubeconfig(folder / "config", server, cluster={"tls-server-name": "kubernetes", **cluster}, user=user))


def ask(path: str) -> str:
    endpoint = connections.find(path)
    with endpoint.pool as pool:
        return str(pool.request("GET", endpoint.server, headers=dict(endpoint.headers()), retries=False).data.decode())


def inline(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


def test_certificates_by_path_beside_the_kubeconfig(authority: pki.Authority, address: str) -> None:
    authority.client("ann", "ann")
    user = {"client-certificate": "ann.crt", "client-key": "ann.key"}
    path = config(authority.folder, address, {"certificate-authority": "ca.crt"}, user)
    assert ask(path) == "ann None"


def test_certificates_inside_the_kubeconfig(authority: pki.Authority, address: str, tmp_path: Path) -> None:
    signed = authority.client("bob", "bob")
    user = {"client-certificate-data": inline(signed.certificate), "client-key-data": inline(signed.key)}
    path = config(tmp_path, address, {"certificate-authority-data": inline(authority.certificate_file)}, user)
    assert ask(path) == "bob None"


def test_a_token_file_goes_before_a_token_and_is_read_anew(authority: pki.Authority, address: str, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("first\n")
    cluster = {"certificate-authority": str(authority.certificate_file)}
    endpoint = connections.find(config(tmp_path, address, cluster, {"token": "fixed", "tokenFile": "token"}))
    assert endpoint.headers() == {"Authorization": "Bearer first"}
    (tmp_path / "token").write_text("second")
    assert endpoint.headers() == {"Authorization": "Bearer second"}
    assert ask(config(tmp_path, address, cluster, {"token": "fixed"})) == "None Bearer fixed"


def test_a_server_that_others_signed_or_of_another_name_is_not_believed(
    authority: pki.Authority, address: str, tmp_path: Path
) -> None:
    other = {"certificate-authority": str(pki.new_authority(tmp_path / "other").certificate_file)}
    right = {"certificate-authority": str(authority.certificate_file)}
    for cluster in (other, {}, {**right, "tls-server-name": "somebody"}, {**right, "tls-server-name": None}):
        with pytest.raises(urllib3.exceptions.SSLError):
            ask(config(tmp_path, address, cluster, {}))
    with pytest.warns(urllib3.exceptions.InsecureRequestWarning):
        assert ask(config(tmp_path, address, {"insecure-skip-tls-verify": True}, {})) == "None None"


def test_inside_a_pod_the_service_account_is_used(
    authority: pki.Authority, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ca.crt").write_bytes(authority.certificate_file.read_bytes())
    (tmp_path / "token").write_text("mounted")
    account = kubeconfig.in_pod({"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": "1"}, str(tmp_path))
    monkeypatch.setattr(connections.kubeconfig, "in_pod", lambda environment: account)  # type: ignore[attr-defined]
    endpoint = connections.find(None)
    assert (endpoint.server, endpoint.headers()) == ("https://127.0.0.1:1", {"Authorization": "Bearer mounted"})


@pytest.mark.parametrize(
    ("cluster", "user"),
    [
        ({"certificate-authority": "gone.crt"}, {}),
        ({"certificate-authority": "config"}, {}),
        ({"certificate-authority-data": base64.b64encode(b"no certificate").decode()}, {}),
        ({}, {"client-certificate": "gone.crt", "client-key": "gone.key"}),
        ({}, {"tokenFile": "gone"}),
    ],
)
def test_a_file_that_is_missing_or_wrong_is_said_at_the_start(tmp_path: Path, cluster: Any, user: Any) -> None:
    path = config(tmp_path, "https://127.0.0.1:1", cluster, user)
    with pytest.raises(InvalidInput, match=f"--kubeconfig {path}: "):
        connections.find(path)
