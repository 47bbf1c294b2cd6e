"""A kubelet that knows nothing but logs, for simulated nodes: kwok's pods print nothing."""

import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import trustme

from tools.kube.session import ClusterSession

Printed = Callable[[str], str]  # a pod's name to what it has printed, with timestamps


def _answering(printed: Printed) -> type[BaseHTTPRequestHandler]:
    class Kubelet(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            """`/containerLogs/NAMESPACE/POD/CONTAINER`."""
            body = printed(self.path.split("/")[3]).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments: object) -> None:
            pass

    return Kubelet


@contextmanager
def logs_of_pods(cluster: ClusterSession, printed: Printed) -> Iterator[None]:
    """Meanwhile the API server asks this process for the logs of pods on all nodes."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _answering(printed))
    server.daemon_threads = True
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    _name_kubelet(cluster, server.server_port)
    try:
        yield
    finally:
        _name_kubelet(cluster, None)
        server.shutdown()
        server.server_close()


def _name_kubelet(cluster: ClusterSession, port: int | None) -> None:
    """All nodes say that their kubelet listens there; None: they say nothing of it, as kwok leaves them."""
    endpoints = None if port is None else {"kubeletEndpoint": {"Port": port}}
    for node in cluster.core.list_node().items:
        cluster.core.patch_node_status(node.metadata.name, {"status": {"daemonEndpoints": endpoints}})
