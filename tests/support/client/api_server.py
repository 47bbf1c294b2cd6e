"""A real HTTP server that answers as a test says; it misbehaves as API servers and networks do."""

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from kompakt_client.connections import plain
from kompakt_client.transport import ApiClient

CUT = "cut"  # in a list of lines: the connection breaks here
OPEN = None  # instead of lines: a watch on which nothing happens


@dataclass
class Scripted:
    """`answers`: (status, body, headers) or lines of a stream, one after the other; the last is repeated."""

    answers: list[Any] = field(default_factory=list)
    asked: list[tuple[str, str, dict[str, str], bytes]] = field(default_factory=list)
    done: threading.Event = field(default_factory=threading.Event)
    address: str = ""


class ScriptedHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    script: Scripted

    def answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.script.asked.append((self.command, self.path, dict(self.headers), body))
        answers = self.script.answers
        found = answers.pop(0) if len(answers) > 1 else answers[0]
        if found == CUT:
            self.cut()
        elif isinstance(found, tuple):
            self.whole(*found)
        else:
            self.stream(found)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = answer

    def whole(self, status: int, body: Any = b"", headers: dict[str, str] | None = None) -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def stream(self, lines: list[Any] | None) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for line in lines or ():
            if line == CUT:
                return self.cut()
            data = line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n"
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
            self.wfile.flush()
        if lines is OPEN:
            self.script.done.wait(5)
        self.wfile.write(b"0\r\n\r\n")
        return None

    def cut(self) -> None:
        self.connection.shutdown(socket.SHUT_RDWR)
        self.close_connection = True

    def log_message(self, format: str, *arguments: Any) -> None:
        pass


@contextmanager
def serving() -> Iterator[Scripted]:
    script = Scripted()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("ScriptedByTest", (ScriptedHandler,), {"script": script}))
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    script.address = f"http://127.0.0.1:{server.server_port}"
    yield script
    script.done.set()
    server.shutdown()
    server.server_close()


def client_of(script: Scripted, **more: Any) -> ApiClient:
    return ApiClient(plain(script.address), **{"sleep": lambda seconds: None, **more})
