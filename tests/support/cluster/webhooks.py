"""Webhooks of others, on loopback, with verdicts that a test chooses."""

import base64
import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from kubernetes import client

from tools.kube.session import ClusterSession, eventually

Object = dict[str, Any]
Verdict = Callable[[Object], Object]
"""From an object that is to be created to `response` of an AdmissionReview, but its uid."""
ALLOWED: Object = {"allowed": True}


def patched(patch: list[Object]) -> Object:
    """An answer that lets the object pass, changed by this JSON patch."""
    return {**ALLOWED, "patchType": "JSONPatch", "patch": base64.b64encode(json.dumps(patch).encode()).decode()}


def adding(path: str, value: object) -> Verdict:
    """What changes every object on its way."""
    return lambda _: patched([{"op": "add", "path": path, "value": value}])


@dataclass
class Webhook:
    """A server on loopback whose verdict can be changed, and about whom it was asked.

    `broken`: it answers 500 instead. `delay`: seconds before each answer.
    """

    verdict: Verdict
    asked: list[str] = field(default_factory=list)
    broken: bool = False
    delay: float = 0.0

    def answer(self, review: Object) -> Object:
        request = review["request"]
        self.asked.append(request["object"]["metadata"]["name"])
        response = {**self.verdict(request["object"]), "uid": request["uid"]}
        return {"apiVersion": review["apiVersion"], "kind": review["kind"], "response": response}


@contextmanager
def served(webhook: Webhook, cluster: ClusterSession) -> Iterator[int]:
    """Its port."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.dumps(webhook.answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))).encode()
            time.sleep(webhook.delay)
            self.send_response(500 if webhook.broken else 200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    signed = cluster.plane.keys.authority.server("webhook", "webhook", ["127.0.0.1"])
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(signed.certificate, signed.key)
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def hooked(
    cluster: ClusterSession,
    namespace: str,
    resource: str,
    probe: Callable[[], object],
    *,
    operations: Sequence[str] = ("CREATE",),
    version: tuple[str, str] = ("", "v1"),
) -> Iterator[Webhook]:
    """A webhook in force, about the resource and its status; `probe` makes one of that kind called "probe" in a dry run."""
    found, name = Webhook(lambda _: ALLOWED), f"{namespace}-{resource}"
    admission = client.AdmissionregistrationV1Api(cluster.api)
    with served(found, cluster) as port:
        authority = base64.b64encode(cluster.plane.keys.authority.certificate_file.read_bytes()).decode()
        rule = {
            "operations": list(operations),
            "apiGroups": [version[0]],
            "apiVersions": [version[1]],
            "resources": [resource, f"{resource}/status"],
        }
        hook = {
            "name": f"{resource}.example.com",
            "clientConfig": {"url": f"https://127.0.0.1:{port}/{resource}", "caBundle": authority},
            "rules": [rule],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
        }
        admission.create_mutating_webhook_configuration({"metadata": {"name": name}, "webhooks": [hook]})
        try:
            await_asked(found, probe)
            yield found
        finally:
            admission.delete_mutating_webhook_configuration(name)


def await_asked(webhook: Webhook, probe: Callable[[], object]) -> None:
    """The API server needs a moment to hear of a new webhook."""

    def asked() -> bool:
        probe()
        return "probe" in webhook.asked

    eventually(asked, "the webhook asked")
