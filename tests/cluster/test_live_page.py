"""The live page beside a real API server: `kompakt ui` reads the stream through its service proxy, and a pod's change arrives."""

import json
import socket
import threading
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, suppress
from http.client import HTTPConnection, HTTPResponse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from kompakt_cli.access import Cluster
from kompakt_cli.live_server import LiveServer
from kompakt_core.contract import ANN_PATTERN, ANN_SENSITIVITY, RESOURCE, SCHEDULER_NAME
from tools import browser as browsers
from tools.browser import Browser
from tools.kube.jobs import apply, training_job
from tools.kube.parts import NAMESPACE, Pair
from tools.kube.session import ClusterSession, eventually

SERVICE = "kompakt-explain"


@pytest.fixture(scope="module")
def reachable(kompakt: ClusterSession, pair: Pair) -> Iterator[str]:
    """The name of a Service that leads to the extender's port: the API server refuses to proxy to loopback addresses."""
    name, (address, forwarding) = "live-page", forwarded(pair.health_port)
    ports = [{"name": "http", "port": forwarding.server_port, "protocol": "TCP"}]
    kompakt.core.create_namespaced_service(NAMESPACE, {"metadata": {"name": name}, "spec": {"ports": ports}})
    unbound = {"schedulerName": "nobody", "containers": [{"name": "c", "image": "simulated"}]}
    kompakt.core.create_namespaced_pod(NAMESPACE, {"metadata": {"name": name}, "spec": unbound})
    kompakt.core.patch_namespaced_pod_status(name, NAMESPACE, {"status": {"podIP": address, "podIPs": [{"ip": address}]}})
    body = {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": name, "labels": {"kubernetes.io/service-name": name}},
        "addressType": "IPv4",
        "ports": ports,
        "endpoints": [
            {
                "addresses": [address],
                "conditions": {"ready": True},
                "targetRef": {"kind": "Pod", "name": name, "namespace": NAMESPACE},
            }
        ],
    }
    kompakt.parts.api.create(f"/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices", body)
    yield name
    forwarding.shutdown()
    forwarding.server_close()
    kompakt.core.delete_namespaced_service(name, NAMESPACE)
    kompakt.core.delete_namespaced_pod(name, NAMESPACE, grace_period_seconds=0)
    kompakt.kubectl("delete", "endpointslice", name, f"--namespace={NAMESPACE}")


class Forwarding(BaseHTTPRequestHandler):
    """Passes requests on to the extender, each part of an answer as it comes."""

    def do_GET(self) -> None:
        self._pass(None)

    def do_POST(self) -> None:
        self._pass(self.rfile.read(int(self.headers["Content-Length"])))

    def _pass(self, body: bytes | None) -> None:
        extender: int = self.server.extender  # type: ignore[attr-defined]
        with closing(HTTPConnection("127.0.0.1", extender, timeout=60)) as connection:
            connection.request(self.command, self.path, body, dict(self.headers.items()))
            with closing(connection.getresponse()) as answer:
                self._answer(answer)

    def _answer(self, answer: HTTPResponse) -> None:
        self.send_response(answer.status)
        for name in ("Content-Type", "Content-Security-Policy", "Content-Length"):
            if answer.getheader(name):
                self.send_header(name, answer.getheader(name) or "")
        self.end_headers()
        with suppress(OSError):
            while part := answer.read1(1 << 16):
                self.wfile.write(part)

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


def forwarded(port: int) -> tuple[str, ThreadingHTTPServer]:
    """An address of this machine that is not its loopback, and a server there."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as routed:
        routed.connect(("192.0.2.1", 9))  # sends nothing
        address = routed.getsockname()[0]
    server = ThreadingHTTPServer((address, 0), Forwarding)
    server.daemon_threads = True
    server.extender = port  # type: ignore[attr-defined]
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return address, server


@pytest.fixture(scope="module")
def page(kompakt: ClusterSession, reachable: str) -> Iterator[LiveServer]:
    """What `kompakt ui` starts."""
    account = f"{NAMESPACE}/{SERVICE}-reader"
    known = Cluster(str(kompakt.kubeconfig), None, NAMESPACE, reachable, account)
    eventually(lambda: known.get("nodes", limit=1)["total"] == 3, "the proxy leads there")
    server = LiveServer(known.passed)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def manifest(name: str, gpus: int) -> dict[str, Any]:
    resources = {"requests": {RESOURCE: str(gpus)}, "limits": {RESOURCE: str(gpus)}}
    containers = [{"name": "trainer", "image": "simulated", "resources": resources}]
    return {
        "metadata": {"name": name, "annotations": {ANN_PATTERN: "Ring", ANN_SENSITIVITY: "High"}},
        "spec": {"schedulerName": SCHEDULER_NAME, "containers": containers},
    }


class Events:
    """The stream as the browser's script reads it."""

    def __init__(self, page: LiveServer, stack: ExitStack) -> None:
        with urllib.request.urlopen(page.address, timeout=10) as entrance:
            cookie = entrance.headers["Set-Cookie"].partition(";")[0]
        connection = stack.enter_context(closing(HTTPConnection("127.0.0.1", page.server_port, timeout=60)))
        connection.request("GET", "/v1alpha1/events", headers={"Cookie": cookie})
        self._answer = stack.enter_context(closing(connection.getresponse()))
        self._rest = b""

    def next(self) -> tuple[str, Mapping[str, Any]]:
        while b"\n\n" not in self._rest:
            part = self._answer.read1(1 << 16)
            assert part, "the stream has ended"
            self._rest += part
        text, _, self._rest = self._rest.partition(b"\n\n")
        kind, _, data = text.partition(b"\ndata: ")
        return (kind.decode(), json.loads(data)) if data else self.next()


def test_a_pods_binding_arrives_through_the_proxy(kompakt: ClusterSession, page: LiveServer, namespace: str) -> None:
    with ExitStack() as stack:
        events = Events(page, stack)
        kind, first = events.next()
        assert kind == "event: all"
        assert {one["name"] for one in first["nodes"]} == {"dgx-0", "dgx-1", "pcie-0"}
        kompakt.core.create_namespaced_pod(namespace, manifest("seen", 2))
        holders: list[tuple[str, str, str]] = []
        while (namespace, "seen", "Bound") not in holders:
            _, event = events.next()
            holders = [(h["namespace"], h["name"], h["how"]) for node in event["nodes"] for h in node["holders"]]


def test_the_page_shows_a_gang_of_the_real_cluster_wait(kompakt: ClusterSession, page: LiveServer, namespace: str) -> None:
    if (reason := browsers.obstacle()) is not None:
        pytest.skip(reason)
    with Browser() as browser:
        browser.open(page.address)
        browser.until("document.getElementById('link')?.dataset.state === 'live'")
        browser.until("document.querySelectorAll('#nodes svg').length === 3")
        job = apply(kompakt, namespace, training_job("large", replicas=8, gpus=8, seconds=None))
        waiting = "document.getElementById('waiting').innerText"
        text = browser.until(f"{waiting}.includes('{namespace}/large') && {waiting}")
        eventually(lambda: job.status.get("scheduling", {}).get("state") == "Waiting", "the gang waits")
        browser.until(f"{waiting}.includes({json.dumps(job.status['scheduling']['message'])})")
        assert "64 GPUs, 8 pods of 8" in text
        browser.evaluate("document.querySelector('#waiting button').click()")
        browser.until("document.getElementById('detail-body').innerText.includes('What it went through')")
        kompakt.core.create_namespaced_pod(namespace, manifest("seen", 2))
        browser.evaluate("document.getElementById('detail').close()")
        browser.until(f"document.getElementById('nodes').innerText.includes('{namespace}/seen')")
        assert browser.troubles == []
        browser.open("about:blank")
