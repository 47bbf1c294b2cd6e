"""Figures of our parts through the API server's proxy, as an account that may read them."""

import json
from dataclasses import replace
from typing import Any

from kompakt_client.requests import ApiRequest
from kompakt_client.transport import connect
from tools.kube.parts import NAMESPACE, READER, asking_headers

BINDING = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRoleBinding",
    "metadata": {"name": "test-metrics-reader"},
    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "kompakt-metrics-reader"},
    "subjects": [{"kind": "ServiceAccount", "name": READER, "namespace": NAMESPACE}],
}


def figures(world: Any, path: str) -> tuple[int, str]:
    """HTTP status without a token, and the page with one."""
    world.kubectl("apply", "--server-side", "-f", "-", stdin=json.dumps(BINDING))
    api, request = connect(str(world.cluster.kubeconfig)), ApiRequest("GET", path, accept="text/plain")
    return api.answer(request).status, api.send(replace(request, for_proxied=asking_headers(api))).decode()
