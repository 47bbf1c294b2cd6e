"""Serves /metrics from the pod's first training process while it runs, in a thread that sleeps between two questions.

Nothing that goes wrong here may disturb the training: where the port is taken there is no page.
"""

import os
import socket
import socketserver
import threading
from http.server import BaseHTTPRequestHandler
from typing import Any, Final

from kompakt_runtime.config import RuntimeConfig
from kompakt_runtime.figures import export, progress
from kompakt_runtime.figures.pace import StepCounter

SECONDS: Final = 2.0  # what one client gets before it is left


def text(config: RuntimeConfig, pace: StepCounter) -> str:
    """The page as of now."""
    reports = [] if config.state_dir is None else export.read_reports(config.state_dir, config.attempt)
    return progress.page(progress.read(config.progress_file), pace.said(), reports) + export.so_far(config, reports)


class MetricsServer(socketserver.TCPServer):
    """On all addresses of the pod, of both families where there are two. (http.server's own asks DNS for a name first.)"""

    allow_reuse_address = True
    address_family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET

    def server_bind(self) -> None:
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is nobody's concern; the trainer's output is the user's."""


def serve(config: RuntimeConfig, pace: StepCounter | None = None) -> MetricsServer | None:
    """Start serving, if the settings name a port and this is the pod's first process; else None. Never raises.

    `pace`: this process's.
    """
    if config.metrics_port is None or os.environ.get("LOCAL_RANK", "0") != "0":
        return None
    try:
        server = MetricsServer(("", config.metrics_port), _pages_of(config, pace or StepCounter()))
    except OSError:
        return None
    # A forked child (a data loader) must not keep the port when its parent has gone.
    os.register_at_fork(after_in_child=server.socket.close)
    threading.Thread(target=server.serve_forever, name="kompakt-metrics", daemon=True).start()
    return server


def _pages_of(config: RuntimeConfig, pace: StepCounter) -> type[BaseHTTPRequestHandler]:
    class Pages(BaseHTTPRequestHandler):
        """One page; every other path is not there."""

        timeout = SECONDS

        def do_GET(self) -> None:
            found = self.path == "/metrics"
            body = (text(config, pace) if found else "only /metrics is here\n").encode()
            self.send_response(200 if found else 404)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """The trainer's output is the user's."""

    return Pages
