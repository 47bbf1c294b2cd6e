"""Plain requests to an API server with a client certificate.

The official client takes two seconds to import on a busy machine, which is a third of a whole start.
"""

import json
import ssl
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml


class Refused(Exception):
    """The API server answered with an error; `status` is the HTTP status, the text its message."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"HTTP {status}: {text}")
        self.status = status


@dataclass(frozen=True, slots=True)
class Api:
    """Requests to one API server."""

    server: str
    context: ssl.SSLContext

    def get(self, path: str) -> dict[str, Any]:
        return self._send("GET", path, None)

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        return self._send("POST", path, body)

    def _send(self, method: str, path: str, body: dict[str, Any] | None) -> dict[str, Any]:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.server}{path}", data, {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=30, context=self.context) as response:
                return dict(json.load(response))
        except urllib.error.HTTPError as error:
            with error:
                raise Refused(error.code, error.read().decode(errors="replace")) from error


def connect(kubeconfig: Path) -> Api:
    """The API server that a kubeconfig of `pki.certificate_kubeconfig` names."""
    document = yaml.safe_load(kubeconfig.read_text())
    cluster, user = document["clusters"][0]["cluster"], document["users"][0]["user"]
    context = ssl.create_default_context(cafile=cluster["certificate-authority"])
    context.load_cert_chain(user["client-certificate"], user["client-key"])
    return Api(cluster["server"], context)
