"""/healthz, /readyz and /metrics of the device plugin."""

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from prometheus_client import CollectorRegistry, generate_latest

from kompakt_client.reviews import READ_METRICS, AccessRefused, Reviews, token_of

METRICS = "/metrics"
STALE_SECONDS = 60.0  # longer than any round takes while the API server is away


class Heartbeat:
    """Says that a thread still goes round."""

    def __init__(self, clock: Callable[[], float], stale: float = STALE_SECONDS) -> None:
        """`clock` gives monotonic seconds; after `stale` of them without a beat the thread counts as hanging, or as ended."""
        self._clock, self._last, self._stale = clock, clock(), stale

    def beat(self) -> None:
        """One round is done."""
        self._last = self._clock()

    @property
    def alive(self) -> bool:
        """Whether the last round is not too long ago."""
        return self._clock() - self._last < self._stale


def serve(
    port: int,
    alive: Callable[[], bool],
    waits_for: Callable[[], str],
    registry: CollectorRegistry,
    reviews: Reviews | None = None,
) -> ThreadingHTTPServer:
    """Answers on all addresses of the pod in a thread of its own. `waits_for` is empty once this process serves its node.

    `reviews` says who may read figures; without, everybody may. Raises OSError where the port is in use; 0 takes a free one.
    """

    def healthz() -> tuple[int, bytes]:
        return (200, b"ok\n") if alive() else (503, b"a thread of the device plugin hangs\n")

    def readyz() -> tuple[int, bytes]:
        reason = waits_for()
        return (503, f"waits for {reason}\n".encode()) if reason else (200, b"ok\n")

    pages: dict[str, Callable[[], tuple[int, bytes]]] = {
        "/healthz": healthz,
        "/readyz": readyz,
        METRICS: lambda: (200, generate_latest(registry)),
    }

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            page = pages.get(self.path)
            if reviews is not None and self.path == METRICS:
                try:
                    reviews.admit(token_of(self.headers.get), READ_METRICS)
                except AccessRefused as refused:
                    return self._answer(refused.status, f"{refused}\n".encode())
            return self._answer(*(page() if page else (404, f"there are {', '.join(pages)}\n".encode())))

        def _answer(self, code: int, body: bytes) -> None:
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
