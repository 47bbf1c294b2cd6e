"""At which priority level the API server serves requests of our accounts, by its own words in the answer's headers."""

import pytest

from kompakt_client.requests import ApiRequest
from kompakt_client.transport import connect
from kompakt_core.contract import API_VERSION, TOPOLOGY_PLURAL
from tools.kube.parts import NAMESPACE
from tools.kube.session import ClusterSession

LEVELS = "/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations"
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/kompakt"
HEADER = "X-Kubernetes-PF-PriorityLevel-UID"


@pytest.mark.parametrize(
    ("account", "path", "level"),
    [
        ("operator", f"{LEASES}-operator", "leader-election"),
        ("scheduler", f"{LEASES}-scheduler", "leader-election"),
        ("operator", "/api/v1/nodes/any", "workload-high"),
        ("scheduler", "/api/v1/pods?limit=1", "workload-high"),
        ("device-plugin", f"/apis/{API_VERSION}/{TOPOLOGY_PLURAL}", "workload-high"),
        ("explain-reader", "/api/v1/nodes/any", "workload-low"),
    ],
)
def test_requests_of_our_accounts_are_not_queued_with_those_of_tenants(
    kompakt: ClusterSession, account: str, path: str, level: str
) -> None:
    names = {one["metadata"]["uid"]: one["metadata"]["name"] for one in connect(kompakt.kubeconfig).get(LEVELS)["items"]}
    answer = connect(kompakt.parts.account_kubeconfig(account)).answer(ApiRequest("GET", path))
    assert names[answer.headers[HEADER]] == level
