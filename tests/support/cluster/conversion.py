"""A webhook on loopback that converts TrainingJobs between two versions, by renaming one field of the spec."""

import base64
import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tools.kube.session import ClusterSession

Object = dict[str, Any]


def renamed(found: Object, version: str, names: dict[str, str]) -> Object:
    """The object in another version, in which the field has the name that `names` says, by version."""
    spec, was = dict(found["spec"]), names[found["apiVersion"].rpartition("/")[2]]
    if was in spec:
        spec[names[version.rpartition("/")[2]]] = spec.pop(was)
    return {**found, "apiVersion": version, "spec": spec}


@contextmanager
def converting(cluster: ClusterSession, names: dict[str, str]) -> Iterator[Object]:
    """`spec.conversion` of a CRD, for as long as the webhook answers."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            body = json.dumps(_answer(review, names)).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    authority = cluster.plane.keys.authority
    signed = authority.server("conversion", "conversion", ["127.0.0.1"])
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(signed.certificate, signed.key)
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        bundle = base64.b64encode(authority.certificate_file.read_bytes()).decode()
        where = {"url": f"https://127.0.0.1:{server.server_address[1]}/convert", "caBundle": bundle}
        try:
            yield {"strategy": "Webhook", "webhook": {"clientConfig": where, "conversionReviewVersions": ["v1"]}}
        finally:
            server.shutdown()
            thread.join()


def _answer(review: Object, names: dict[str, str]) -> Object:
    asked = review["request"]
    converted = [renamed(one, asked["desiredAPIVersion"], names) for one in asked["objects"]]
    response = {"uid": asked["uid"], "convertedObjects": converted, "result": {"status": "Success"}}
    return {"apiVersion": review["apiVersion"], "kind": review["kind"], "response": response}
