"""Requests to the API server over real HTTP, and how it is found."""

import json
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import urllib3

from kompakt_client.connections import Endpoint, plain
from kompakt_client.credentials import Credentials
from kompakt_core.errors import InvalidInput
from kompakt_device_plugin.api import ApiException, KubernetesApi, connect


@pytest.fixture
def server():
    """Answers what the test put under a path, and keeps what it was asked."""

    class Handler(BaseHTTPRequestHandler):
        def answer(self):
            length = int(self.headers.get("Content-Length") or 0)
            one.asked.append((self.command, self.path, dict(self.headers), self.rfile.read(length)))
            status, body = one.answers.get(self.path.partition("?")[0], (404, b'{"message": "nothing here"}'))
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_PATCH = answer

        def log_message(self, *arguments):
            pass

    one = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    one.daemon_threads = True
    one.asked, one.answers = [], {}
    threading.Thread(target=one.serve_forever, daemon=True).start()
    yield one
    one.shutdown()
    one.server_close()


@pytest.fixture
def tokens():
    return ["first", "second"]


class Renewed(Credentials):
    """Another token for each request."""

    def __init__(self, tokens):
        super().__init__()
        self._tokens = tokens

    def headers(self):
        return {"Authorization": f"Bearer {self._tokens.pop(0)}"}


@pytest.fixture
def api(server, tokens):
    pool = urllib3.PoolManager()
    yield KubernetesApi(Endpoint(f"http://127.0.0.1:{server.server_port}", lambda *pair: pool, Renewed(tokens)))
    pool.clear()


def test_every_request_asks_for_the_token_anew(api, server):
    server.answers["/a"] = (200, b'{"kind": "A"}')
    assert api.get("/a") == api.get("/a") == {"kind": "A"}
    assert [headers["Authorization"] for _, _, headers, _ in server.asked] == ["Bearer first", "Bearer second"]


def test_selectors_bodies_and_kinds_go_over_the_wire(api, server):
    server.answers["/pods"] = (200, b'{"items": null, "metadata": {"resourceVersion": "7"}}')
    assert api.list("/pods", {"fieldSelector": "spec.nodeName=node-1"}).resource_version == "7"
    server.answers["/pods/a"] = (200, b"{}")
    api.apply("/pods/a", {"kind": "Pod"}, manager="me")
    (_, listed, _, _), (verb, applied, headers, body) = server.asked
    assert listed == "/pods?fieldSelector=spec.nodeName%3Dnode-1"
    assert (verb, applied) == ("PATCH", "/pods/a?fieldManager=me&force=true")
    assert (headers["Content-Type"], json.loads(body)) == ("application/apply-patch+yaml", {"kind": "Pod"})


def test_an_error_carries_status_and_the_servers_own_words(api, server):
    assert api.get("/nothing") is None
    server.answers["/b"] = (403, b'{"message": "no right to do that"}')
    with pytest.raises(ApiException) as refused:
        api.create("/b", {})
    assert (refused.value.status, refused.value.reason) == (403, "no right to do that")


def test_a_watch_gives_events_as_they_come(api, server):
    server.answers["/pods"] = (200, b'{"type": "ADDED"}\n{"type": "MODI' + b'FIED"}\n')
    assert [event["type"] for event in api.watch("/pods", "7")] == ["ADDED", "MODIFIED"]
    assert "resourceVersion=7" in server.asked[0][1]


def test_an_address_that_answers_nothing_costs_no_more_than_the_request_may_take():
    """Its queue of connections is full, so the kernel drops further ones as a dead host would."""
    with socket.socket() as deaf, socket.socket() as first, socket.socket() as second:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)
        for one in (first, second):
            one.setblocking(False)
            one.connect_ex(deaf.getsockname())
        api = KubernetesApi(plain(f"http://127.0.0.1:{deaf.getsockname()[1]}"))
        began = time.monotonic()
        with pytest.raises(urllib3.exceptions.HTTPError):
            api.list("/pods", timeout=0.2)
        assert time.monotonic() - began < 4, "connecting alone may take five seconds"


@pytest.mark.parametrize("content", [None, "", "{", "a: [", "kind: Config\nclusters: 3"])
def test_without_a_usable_way_there_is_a_sentence(tmp_path, monkeypatch, content):
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(InvalidInput, match="not inside a cluster"):
        connect(None)
    file = tmp_path / "kubeconfig"
    if content is not None:
        file.write_text(content)
    with pytest.raises(InvalidInput, match=f"--kubeconfig {file}"):
        connect(str(file))


def test_the_plugin_loads_the_drivers_constants_only_where_there_is_a_driver():
    """They would take megabytes of its memory."""
    import subprocess
    import sys

    code = "import sys, kompakt_device_plugin.main; print('pynvml' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
