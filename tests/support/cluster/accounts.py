"""Our own accounts as a thief would have them: with every right that RBAC can give, so that only policies are in the way."""

import json
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from kompakt_client.requests import JSON, JSON_PATCH, MERGE_PATCH
from tools.kube.parts import NAMESPACE, RELEASE
from tools.kube.session import ClusterSession

NODE_NAME: Final = "authentication.kubernetes.io/node-name"


@dataclass(frozen=True, slots=True)
class Answered:
    """What the API server said."""

    code: int
    message: str


class Account:
    """`node`: of the pod whose token it is."""

    def __init__(self, cluster: ClusterSession, part: str, node: str = "") -> None:
        self._client, self._server = cluster.api.rest_client.pool_manager, cluster.plane.addresses.server
        self._headers = {
            "Impersonate-User": f"system:serviceaccount:{NAMESPACE}:{RELEASE}-{part}",
            "Impersonate-Group": "system:masters",
        }
        if node:
            self._headers[f"Impersonate-Extra-{quote(NODE_NAME, safe='')}"] = node

    def send(self, method: str, path: str, body: object = None, *, dry: bool = True) -> Answered:
        headers = {**self._headers, "Content-Type": _content_type(method, body)}
        data = None if body is None else json.dumps(body)
        answer = self._client.request(method, f"{self._server}{path}{'?dryRun=All' if dry else ''}", body=data, headers=headers)
        return Answered(answer.status, str(_decoded(answer.data).get("message", "")))


def _content_type(method: str, body: object) -> str:
    """A patch that is a list is a JSON patch."""
    return JSON if method != "PATCH" else JSON_PATCH if isinstance(body, list) else MERGE_PATCH


def _decoded(data: bytes) -> dict[str, Any]:
    try:
        return dict(json.loads(data))
    except ValueError:
        return {"message": data.decode(errors="replace")}
