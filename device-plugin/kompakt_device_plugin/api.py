"""What of the API server the node's agents read and write, by path."""

from collections.abc import Mapping
from typing import Any, Final, Protocol

from kompakt_client.reflector import Source
from kompakt_client.requests import NO_QUERY, Object, Query
from kompakt_core import contract

PODS: Final = "/api/v1/pods"
NODES: Final = "/api/v1/nodes"
SLICES: Final = "/apis/resource.k8s.io/v1/resourceslices"
TOPOLOGIES: Final = f"/apis/{contract.API_VERSION}/{contract.TOPOLOGY_PLURAL}"


def pod_path(namespace: str, name: str) -> str:
    """Where one pod lives."""
    return f"/api/v1/namespaces/{namespace}/pods/{name}"


class Api(Source, Protocol):
    """What they ask of the API server: kompakt_client's ApiClient. Every method raises an ApiError."""

    def get(self, path: str) -> Object: ...
    def list(self, path: str, query: Query = NO_QUERY, *, seconds: float = 30.0) -> Object: ...
    def apply(self, path: str, body: Mapping[str, Any], *, manager: str) -> Object: ...
    def merge(self, path: str, body: Mapping[str, Any]) -> Object: ...
    def create(self, path: str, body: Mapping[str, Any]) -> Object: ...
