"""/healthz and /metrics of the device plugin."""

import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

STALE_SECONDS = 60.0  # longer than any round takes while the API server is away


class Beat:
    """Says that a thread still goes round."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock, self._last = clock, clock()

    def beat(self) -> None:
        """One round is done."""
        self._last = self._clock()

    @property
    def alive(self) -> bool:
        """Whether the last round is not too long ago."""
        return self._clock() - self._last < STALE_SECONDS


def serve(port: int, alive: Callable[[], bool], metrics: Callable[[], Mapping[str, float]]) -> ThreadingHTTPServer:
    """Answers on all addresses of the pod in a thread of its own. Raises OSError where the port is in use; 0 takes a free one."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/healthz":
                self._answer(*((200, "ok\n") if alive() else (503, "a thread of the device plugin hangs\n")))
            elif self.path == "/metrics":
                self._answer(200, exposition(metrics()))
            else:
                self._answer(404, "there are /healthz and /metrics\n")

        def _answer(self, code: int, text: str) -> None:
            body = text.encode()
            self.send_response(code)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Probes every few seconds are not worth a line."""

    server = ThreadingHTTPServer(("", port), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, name="health", daemon=True).start()
    return server


def exposition(values: Mapping[str, float]) -> str:
    """Prometheus' text format; all values are counters whose names end in _total, or gauges."""
    lines = (
        f"# TYPE {name} {'counter' if name.endswith('_total') else 'gauge'}\n{name} {value:g}\n" for name, value in values.items()
    )
    return "".join(lines)
