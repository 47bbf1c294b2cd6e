"""An API server that answers by method and path, as a script says, and a kubeconfig that names it."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.support.cli.standin import kubeconfig


@dataclass(frozen=True)
class Cut:
    """An answer whose connection breaks after this text."""

    text: str


@dataclass
class Script:
    """Answers by method and path: one, a list in order and its last one for ever, or whatever a function says; what was asked."""

    answers: dict[tuple[str, str], tuple[int, Any] | list[tuple[int, Any]] | Callable[[], tuple[int, Any]]] = field(
        default_factory=dict
    )
    asked: list[tuple[str, str]] = field(default_factory=list)
    queries: list[dict[str, list[str]]] = field(default_factory=list)
    bodies: list[Any] = field(default_factory=list)
    types: list[str | None] = field(default_factory=list)

    def next(self, method: str, path: str) -> tuple[int, Any]:
        found = self.answers.get((method, path), (404, {"message": f"{path} not found"}))
        if callable(found):
            return found()
        if isinstance(found, list):
            return found.pop(0) if len(found) > 1 else found[0]
        return found

    def queries_of(self, path: str) -> list[dict[str, list[str]]]:
        """What was asked of a path, without where in between."""
        return [query for (_, asked), query in zip(self.asked, self.queries, strict=True) if asked == path]


def answering(script: Script) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_any(self) -> None:
            url = urlsplit(self.path)
            script.asked.append((self.command, url.path))
            script.queries.append(parse_qs(url.query))
            script.bodies.append(json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"null"))
            script.types.append(self.headers.get("Content-Type"))
            status, said = script.next(self.command, url.path)
            text = said.text if isinstance(said, Cut) else said if isinstance(said, str) else json.dumps(said)
            body = text.encode()
            self.send_response(status)
            if isinstance(said, Cut):
                self.send_header("Transfer-Encoding", "chunked")
                body = b"%x\r\n%s\r\n" % (len(body), body)
            else:
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
            self.close_connection = isinstance(said, Cut)

        do_GET = do_POST = do_PATCH = do_DELETE = handle_any

        def log_message(self, *arguments: Any) -> None:
            pass

    return Handler


@contextmanager
def scripted_api(folder: Path, namespace: str = "ml") -> Iterator[tuple[Script, str]]:
    """A script that is served, and the path of a kubeconfig that leads to it."""
    script = Script()
    server = ThreadingHTTPServer(("127.0.0.1", 0), answering(script))
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    yield script, str(kubeconfig(folder, server.server_port, namespace=namespace))
    server.shutdown()
    server.server_close()
