"""`kompakt ui` against the real explain API behind a stand-in of the API server: whom it serves, and what it passes on."""

import http.client
import json
import os
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from kompakt_cli import access, main
from kompakt_cli.access import Cluster
from kompakt_cli.live_server import LiveServer
from kompakt_core.errors import InvalidInput
from tests.support.cli.standin import Standin, kubeconfig, serving
from tests.support.extender.explain_client import ExplainClient, explain_client
from tests.support.extender.guard import TOKEN

Answer = tuple[int, dict[str, str], bytes]


async def some_nodes() -> ExplainClient:
    return explain_client()


@pytest.fixture(scope="module")
def standin() -> Iterator[tuple[Standin, int]]:
    with serving(some_nodes()) as found:
        yield found


@pytest.fixture
def cluster(standin: tuple[Standin, int], tmp_path: Path) -> Cluster:
    return Cluster(str(kubeconfig(tmp_path, standin[1])), None, "kompakt-system", "kompakt-explain")


@pytest.fixture
def server(cluster: Cluster) -> Iterator[LiveServer]:
    made = LiveServer(cluster.passed)
    thread = threading.Thread(target=made.serve_forever, args=(0.01,))
    thread.start()
    with made:
        yield made
        made.shutdown()
    thread.join(10)


def asked(server: LiveServer, path: str, method: str = "GET", body: bytes | None = None, **headers: str) -> Answer:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=20)
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, path, body, given)
    answer = connection.getresponse()
    found = answer.status, {key.lower(): value for key, value in answer.getheaders()}, answer.read()
    connection.close()
    return found


def cookie(server: LiveServer) -> dict[str, str]:
    _, headers, _ = asked(server, f"/?key={server.secret}")
    return {"Cookie": headers["set-cookie"].partition(";")[0]}


def test_the_address_with_its_key_lets_in(server: LiveServer) -> None:
    status, headers, body = asked(server, server.address.partition(str(server.server_port))[2])
    assert status == 200
    assert {"HttpOnly", "SameSite=Strict"} <= set(headers["set-cookie"].split("; "))
    assert b'url=/ui/"' in body
    status, headers, body = asked(server, "/ui/", **cookie(server))
    assert status == 200
    assert b"<title>kompakt" in body
    assert "default-src 'none'" in headers["content-security-policy"]


@pytest.mark.parametrize("path", ["/", "/?key=", "/?key=wrong", "/ui/", "/ui/app.js", "/v1alpha1/overview", "/v1alpha1/events"])
def test_without_the_key_nothing_is_told(server: LiveServer, standin: tuple[Standin, int], path: str) -> None:
    before = standin[0].requests
    status, headers, body = asked(server, path)
    assert status == 403
    assert "set-cookie" not in headers
    assert server.secret.encode() not in body
    assert standin[0].requests == before


def test_a_name_that_somebody_made_lead_here_is_refused(server: LiveServer) -> None:
    mine = cookie(server)
    assert asked(server, "/ui/", Host=f"evil.example:{server.server_port}", **mine)[0] == 403
    assert asked(server, f"/?key={server.secret}", Host="evil.example")[0] == 403


@pytest.mark.parametrize(
    "more",
    [{"Origin": "http://evil.example"}, {"Sec_Fetch_Site": "cross-site"}, {"Sec_Fetch_Site": "same-site"}, {"Origin": "null"}],
)
def test_a_page_of_another_site_gets_nothing(server: LiveServer, more: dict[str, str]) -> None:
    assert asked(server, "/v1alpha1/overview", **cookie(server), **more)[0] == 403
    assert asked(server, "/v1alpha1/what-if", "POST", b'{"gpus": 1}', **cookie(server), **more)[0] == 403


@pytest.mark.parametrize(
    "path", ["/metrics", "/healthz", "/docs", "/v1alpha1/../metrics", "/ui/%2e%2e/metrics", "/api/v1/secrets"]
)
def test_nothing_but_the_page_and_the_explain_api_is_passed(server: LiveServer, standin: tuple[Standin, int], path: str) -> None:
    mine, before = cookie(server), standin[0].requests
    assert asked(server, path, **mine)[0] == 404
    assert standin[0].requests == before


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS", "CONNECT"])
def test_other_methods_are_refused(server: LiveServer, method: str) -> None:
    assert asked(server, "/v1alpha1/nodes", method, **cookie(server))[0] == 501


def test_only_what_if_may_be_posted(server: LiveServer) -> None:
    mine = cookie(server)
    status, _, body = asked(server, "/v1alpha1/what-if", "POST", b'{"gpus": 2}', Content_Type="application/json", **mine)
    assert (status, json.loads(body)["fits"]) == (200, 3)
    assert asked(server, "/v1alpha1/nodes", "POST", b"{}", **mine)[0] == 404
    assert asked(server, "/v1alpha1/what-if", "POST", b"x" * (300 << 10), **mine)[0] == 413


def test_the_token_goes_to_the_service_and_never_to_the_browser(server: LiveServer, standin: tuple[Standin, int]) -> None:
    status, headers, body = asked(server, "/v1alpha1/overview", **cookie(server))
    assert status == 200
    assert len(json.loads(body)["nodes"]) == 3
    for secret in (TOKEN, "Bearer", "mine"):
        assert secret not in f"{headers}{body.decode()}"


def test_a_stream_is_passed_as_it_comes(server: LiveServer) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=20)
    connection.request("GET", "/v1alpha1/events", headers=cookie(server))
    answer = connection.getresponse()
    assert answer.getheader("Content-Type", "").startswith("text/event-stream")
    text = b""
    while b"event: all\ndata: " not in text or not text.endswith(b"\n\n"):
        text += answer.read1(65536)
    assert len(json.loads(text.partition(b"data: ")[2])["nodes"]) == 3
    answer.close()
    connection.close()


def test_a_token_is_renewed_before_it_ends(
    cluster: Cluster, standin: tuple[Standin, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr(access, "monotonic", lambda: now)
    granted = standin[0].granted
    cluster.get("nodes")
    before = len(granted)
    now = access.TOKEN_SECONDS - access.TOKEN_RESERVE - 1.0
    cluster.get("nodes")
    assert len(granted) == before
    now += 2.0
    cluster.get("nodes")
    assert len(granted) == before + 1


def test_a_token_that_is_not_taken_any_more_is_replaced_before_the_page_hears_of_it(
    standin: tuple[Standin, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = iter(["forged", TOKEN])
    monkeypatch.setattr(access, "_read_token", lambda path: next(tokens))
    cluster = Cluster(
        str(kubeconfig(tmp_path, standin[1])), None, "kompakt-system", "kompakt-explain", token_file=str(tmp_path / "token")
    )
    answer: Any = cluster.passed("GET", "/v1alpha1/nodes/none", None, 10.0)
    assert answer.status == 404
    assert next(tokens, None) is None


def test_a_token_from_a_pipe_is_read_once_and_one_in_a_file_again(
    standin: tuple[Standin, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr(access, "monotonic", lambda: now)
    pipe, file = tmp_path / "pipe", tmp_path / "file"
    os.mkfifo(pipe)
    threading.Thread(target=pipe.write_text, args=(TOKEN,)).start()
    file.write_text(TOKEN)
    path = str(kubeconfig(tmp_path, standin[1]))
    once, again = (Cluster(path, None, "kompakt-system", "kompakt-explain", token_file=str(one)) for one in (pipe, file))
    for _ in range(2):
        assert once.get("nodes") == again.get("nodes")
        now += 10_000.0
    file.write_text("")
    with pytest.raises(InvalidInput, match="holds no token"):
        again.get("nodes")


def test_the_address_for_a_browsers_command_line_lets_in_once(server: LiveServer) -> None:
    path = server.address_once().partition(str(server.server_port))[2]
    assert server.secret not in path
    assert [asked(server, path)[0] for _ in range(2)] == [200, 403]
    assert asked(server, "/?key=")[0] == 403
    assert asked(server, server.address.partition(str(server.server_port))[2])[0] == 200


def test_a_browser_that_goes_away_leaves_no_traceback(server: LiveServer, capfd: pytest.CaptureFixture[str]) -> None:
    with socket.create_connection(("127.0.0.1", server.server_port)) as browser:
        browser.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # it resets the connection
        browser.sendall(b"GET /ui/ HTTP/1.1\r\n")
    assert asked(server, "/ui/", **cookie(server))[0] == 200
    server.shutdown()
    server.server_close()  # waits for its threads
    assert "Traceback" not in capfd.readouterr().err


def test_an_error_of_the_api_reaches_the_page_as_it_is(server: LiveServer) -> None:
    status, _, body = asked(server, "/v1alpha1/nodes/none", **cookie(server))
    assert status == 404
    assert "no node 'none'" in json.loads(body)["detail"]


def test_what_is_wrong_is_said_before_anything_listens(standin: tuple[Standin, int], tmp_path: Path) -> None:
    path = kubeconfig(tmp_path, standin[1], token="no-tokens")
    found: Any = CliRunner().invoke(main.application(), ["ui", f"--kubeconfig={path}"])
    assert isinstance(found.exception, InvalidInput)
    assert "serviceaccounts/token is forbidden" in str(found.exception)


def test_a_taken_port_is_named(server: LiveServer, standin: tuple[Standin, int], tmp_path: Path) -> None:
    path = kubeconfig(tmp_path, standin[1])
    found: Any = CliRunner().invoke(main.application(), ["ui", f"--kubeconfig={path}", f"--port={server.server_port}"])
    assert f"cannot listen on 127.0.0.1:{server.server_port}" in str(found.exception)
