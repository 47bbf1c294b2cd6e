"""What is told to the proxy before an API server (tools/kube/faulty.py), and asked of it."""

import json
import ssl
import urllib.request
from typing import Any

from tools.kube.session import ClusterSession


def asked(cluster: ClusterSession, url: str, body: object = None) -> Any:
    """What the proxy answers; with a body it is PUT."""
    trust = ssl.create_default_context(cafile=str(cluster.plane.keys.authority.certificate_file))
    request = urllib.request.Request(url, None if body is None else json.dumps(body).encode(), method="PUT" if body else "GET")
    with urllib.request.urlopen(request, timeout=5, context=trust) as answer:
        return json.load(answer)
