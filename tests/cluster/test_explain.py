"""The explain API beside a real kube-scheduler: what it foretells happens, and who is told what is the API server's to say."""

import json
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
import yaml
from kubernetes import client
from prometheus_client.parser import text_string_to_metric_families

from kompakt_client.requests import ApiRequest
from kompakt_core.contract import (
    ANN_GPU_INDICES,
    ANN_PATTERN,
    ANN_REQUIRED_LINK,
    ANN_SENSITIVITY,
    ANN_VALUE,
    RESOURCE,
    SCHEDULER_NAME,
    TOKEN_HEADER,
)
from tools.kube.jobs import apply, training_job
from tools.kube.parts import NAMESPACE, READER, Pair, account_token, asking_headers
from tools.kube.session import ClusterSession, eventually

ROLES = ("kompakt-explain-reader", "kompakt-explain-caller")
HEADERS: dict[str, str] = {}


@pytest.fixture(scope="module", autouse=True)
def asking(kompakt: ClusterSession) -> None:
    """From here on `fetch` asks in the name of the account of readers."""
    HEADERS.update(asking_headers(kompakt.parts.api))


def fetch(port: int, path: str, body: Any = None, headers: Mapping[str, str] | None = None) -> tuple[int, str]:
    """Status and text of an answer on the health port."""
    data = None if body is None else json.dumps(body).encode()
    told = {"Content-Type": "application/json", **(HEADERS if headers is None else headers)}
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data, told)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def ask(pair: Pair, path: str, body: Any = None) -> dict[str, Any]:
    status, text = fetch(pair.health_port, f"/v1alpha1{path}", body)
    assert status == 200, text
    found: dict[str, Any] = json.loads(text)
    return found


def manifest(name: str, gpus: int) -> dict[str, Any]:
    resources = {"requests": {RESOURCE: str(gpus)}, "limits": {RESOURCE: str(gpus)}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": {ANN_PATTERN: "Ring", ANN_SENSITIVITY: "High"}},
        "spec": {
            "schedulerName": SCHEDULER_NAME,
            "containers": [{"name": "trainer", "image": "simulated", "resources": resources}],
        },
    }


def bound(cluster: ClusterSession, namespace: str, name: str) -> Any:
    def look() -> Any:
        pod = cluster.core.read_namespaced_pod(name, namespace)
        return pod if pod.spec.node_name else None

    return eventually(look, f"{name} bound")


def metric(pair: Pair, name: str) -> dict[tuple[str, ...], float]:
    """Values of one metric by the values of its labels."""
    _, text = fetch(pair.health_port, "/metrics")
    samples = (sample for family in text_string_to_metric_families(text) for sample in family.samples)
    return {tuple(v for _, v in sorted(s.labels.items())): s.value for s in samples if s.name == name}


def test_what_if_foretells_what_kube_scheduler_does(kompakt: ClusterSession, pair: Pair, namespace: str) -> None:
    eventually(lambda: len(ask(pair, "/nodes")["items"]) == 3, "three nodes known")
    made = manifest("foretold", 4)
    told = ask(pair, "/what-if", {"pod": made})
    kompakt.core.create_namespaced_pod(namespace, made)
    pod = bound(kompakt, namespace, "foretold")
    # Between nodes of the same score kube-scheduler draws lots.
    best = {one["node"]: one for one in told["offers"] if one["score"] == told["offers"][0]["score"]}
    first = best[pod.spec.node_name]
    second = next(one for one in told["offers"] if one["node"] != first["node"])
    assert pod.metadata.annotations[ANN_GPU_INDICES] == ",".join(map(str, first["gpus"]))
    assert pod.metadata.annotations[ANN_VALUE] == str(first["value"])

    def explained() -> dict[str, Any] | None:
        answer = ask(pair, f"/pods/{namespace}/foretold")
        return answer if answer["state"] == "Bound" else None

    answer = eventually(explained, "the pod explained as bound")
    decision = answer["decision"]
    assert decision["chosen"] == {"gpus": first["gpus"], "value": first["value"]}
    assert decision["secondNode"]["value"] == second["value"]
    assert decision["secondNode"]["node"] != first["node"]
    assert answer["ideal"] == told["ideal"]
    holders = {h["name"] for gpu in ask(pair, f"/nodes/{first['node']}")["gpuList"] for h in gpu["holders"]}
    assert holders == {"foretold"}


def test_a_waiting_gang_is_told_why_and_counted(kompakt: ClusterSession, pair: Pair, namespace: str) -> None:
    holding = [manifest(f"hold-{number}", 6) for number in range(3)]
    for made in holding:
        kompakt.core.create_namespaced_pod(namespace, made)
    for made in holding:
        bound(kompakt, namespace, made["metadata"]["name"])
    job = apply(kompakt, namespace, training_job("large", replicas=1, gpus=8, seconds=None))
    eventually(lambda: job.status.get("scheduling", {}).get("state") == "Waiting", "the gang waits")
    answer = ask(pair, f"/pods/{namespace}/large-worker-0-a1")
    assert (answer["state"], answer["fits"]) == ("Waiting", 0)
    assert {one["reason"]: one["nodes"] for one in answer["rejections"]} == {"NotEnoughFreeGPUs": 3}
    assert answer["message"] == job.status["scheduling"]["message"]
    assert ask(pair, f"/jobs/{namespace}/large")["scheduling"]["state"] == "Waiting"
    left = metric(pair, "kompakt_node_ring_left_bytes_per_second")
    assert {gpus for gpus, node in left if node == "pcie-0"} == {"2", "4", "8"}
    assert left["8", "dgx-0"] == 0 < left["2", "dgx-0"]


def all_free(pair: Pair) -> bool:
    """Whether the extender, too, has heard that the GPUs of earlier tests are free again."""
    return all(len(node["free"]) == node["gpus"] for node in ask(pair, "/nodes")["items"])


def test_rejections_and_values_are_counted(kompakt: ClusterSession, pair: Pair, namespace: str) -> None:
    """kube-scheduler knows nothing of links: only our filter can refuse the machine whose GPUs NVLink joins in pairs."""
    eventually(lambda: all_free(pair), "all GPUs free")
    made = manifest("linked", 4)
    made["metadata"]["annotations"][ANN_REQUIRED_LINK] = "NVLink"
    before = metric(pair, "kompakt_extender_rejections_total").get(("RequiredLinkMissing", "filter"), 0)
    told = ask(pair, "/what-if", {"pod": made})
    assert [(one["reason"], one["examples"]) for one in told["rejections"]] == [("RequiredLinkMissing", ["pcie-0"])]
    kompakt.core.create_namespaced_pod(namespace, made)
    assert bound(kompakt, namespace, "linked").spec.node_name.startswith("dgx-")
    assert metric(pair, "kompakt_extender_rejections_total")["RequiredLinkMissing", "filter"] > before
    assert metric(pair, "kompakt_extender_bind_value_ratio_count")[("Ring",)] >= 1
    assert metric(pair, "kompakt_extender_verb_seconds_count")[("filter",)] > 0


def test_a_standby_says_who_decides(kompakt: ClusterSession, pair: Pair) -> None:
    _, extender, _ = kompakt.parts.pair("standby-0")
    kompakt.start(extender)
    try:
        port = next(int(word.rpartition("=")[2]) for word in extender.argv if word.startswith("--health-port="))
        eventually(lambda: f"held by {pair.identity}_" in fetch(port, "/v1alpha1/nodes")[1], "the holder named")
        assert fetch(port, "/v1alpha1/nodes")[0] == 503
        assert fetch(port, "/readyz")[0] == 200, "it could take over"
    finally:
        kompakt.kill("standby-0-extender")


@pytest.fixture
def reader(cluster: ClusterSession) -> Iterator[str]:
    """A user to whom the chart's roles are bound."""
    rbac, name = client.RbacAuthorizationV1Api(cluster.api), "explain-test-reader"
    for role in ROLES:
        body = {
            "metadata": {"name": f"{name}-{role}"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role},
            "subjects": [{"kind": "User", "name": name, "apiGroup": "rbac.authorization.k8s.io"}],
        }
        rbac.create_namespaced_role_binding(NAMESPACE, body)
    yield name
    for role in ROLES:
        rbac.delete_namespaced_role_binding(f"{name}-{role}", NAMESPACE)


@pytest.mark.parametrize(
    ("verb", "resource", "name", "allowed"),
    [
        ("get", "services/proxy", "kompakt-explain:http", True),
        ("create", "services/proxy", "kompakt-explain:http", True),
        ("delete", "services/proxy", "kompakt-explain:http", False),
        ("get", "services/proxy", "other:http", False),
        ("get", "pods/proxy", "kompakt-scheduler-0", False),
        ("get", "services", "kompakt-explain", False),
        ("create", "serviceaccounts/token", READER, True),
        ("create", "serviceaccounts/token", "kompakt-scheduler", False),
    ],
)
def test_readers_may_ask_and_nothing_else(
    cluster: ClusterSession, reader: str, verb: str, resource: str, name: str, allowed: bool
) -> None:
    kind, _, sub = resource.partition("/")
    attributes = {"namespace": NAMESPACE, "verb": verb, "resource": kind, "subresource": sub, "name": name}
    reviews = client.AuthorizationV1Api(cluster.api)

    def answer(user: str) -> bool:
        review = {"spec": {"user": user, "resourceAttributes": attributes}}
        return bool(reviews.create_subject_access_review(review).status.allowed)

    if allowed:
        eventually(lambda: answer(reader), "the role counts")
    assert answer(reader) is allowed
    assert not answer("somebody")


def test_strangers_and_tokens_that_are_for_the_api_server_get_no_word(kompakt: ClusterSession, pair: Pair) -> None:
    theirs = {TOKEN_HEADER: account_token(kompakt.parts.api, READER)}
    assert fetch(pair.health_port, "/v1alpha1/nodes")[0] == 200
    for headers in ({}, theirs, {TOKEN_HEADER: HEADERS[TOKEN_HEADER][:-4] + "AAAA"}):
        for path in ("/v1alpha1/nodes", "/v1alpha1/pods/default/x", "/metrics"):
            assert fetch(pair.health_port, path, headers=headers)[0] == 401, (path, headers)
    port = next(flag.partition("=")[2] for flag in kompakt.components["operator-0"].argv if flag.startswith("--health-port="))
    assert fetch(int(port), "/metrics", headers={})[0] == 401
    assert "kompakt_operator_active" in fetch(int(port), "/metrics")[1]


def test_who_may_view_a_namespace_is_told_of_it_and_of_no_other(kompakt: ClusterSession, pair: Pair, namespace: str) -> None:
    """As the chart's role for viewers says; of nodes only who views the whole cluster."""
    kompakt.core.create_namespaced_service_account(namespace, {"metadata": {"name": "tenant"}})
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "kompakt-jobs-view"}
    subject = {"kind": "ServiceAccount", "name": "tenant", "namespace": namespace}
    body = {"metadata": {"name": "viewers"}, "roleRef": role, "subjects": [subject]}
    client.RbacAuthorizationV1Api(kompakt.api).create_namespaced_role_binding(namespace, body)
    kompakt.core.create_namespaced_pod(namespace, manifest("mine", 1))
    eventually(lambda: fetch(pair.health_port, f"/v1alpha1/pods/{namespace}/mine")[0] == 200, "the pod known")
    headers = asking_headers(kompakt.parts.api, "tenant", namespace)
    eventually(
        lambda: fetch(pair.health_port, f"/v1alpha1/pods/{namespace}/mine", headers=headers)[0] == 200, "the role counts", 30
    )
    for path in ("/pods/default/x", "/jobs/kube-system/x", "/nodes", "/nodes/dgx-0"):
        assert fetch(pair.health_port, f"/v1alpha1{path}", headers=headers)[0] == 403, path
    assert fetch(pair.health_port, "/v1alpha1/what-if", {"gpus": 1}, headers)[0] == 403
    assert fetch(pair.health_port, "/metrics", headers=headers)[0] == 403


@pytest.fixture
def heard() -> Iterator[tuple[str, int, list[dict[str, str]]]]:
    """Address and port of a server on this machine, and the headers of what reaches it."""
    headers = list[dict[str, str]]()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            headers.append({name.lower(): value for name, value in self.headers.items()})
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as routed:  # the API server refuses loopback addresses
        routed.connect(("192.0.2.1", 9))  # sends nothing
        address = routed.getsockname()[0]
    server = ThreadingHTTPServer((address, 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield address, server.server_port, headers
    server.shutdown()
    server.server_close()


def test_the_proxy_says_nothing_of_who_asks_and_passes_our_header_on(
    cluster: ClusterSession, namespace: str, heard: tuple[str, int, list[dict[str, str]]]
) -> None:
    """What decision 0268 rests on."""
    address, port, headers = heard
    ports = [{"name": "http", "port": port}]
    cluster.core.create_namespaced_service(namespace, {"metadata": {"name": "ours"}, "spec": {"ports": ports}})
    # The API server leads to addresses of pods only, so there is one that has this machine's. Nobody binds it: a simulated
    # kubelet would give it another address.
    unbound = {"schedulerName": "nobody", "containers": [{"name": "c", "image": "simulated"}]}
    cluster.core.create_namespaced_pod(namespace, {"metadata": {"name": "ours"}, "spec": unbound})
    cluster.core.patch_namespaced_pod_status("ours", namespace, {"status": {"podIP": address, "podIPs": [{"ip": address}]}})
    target = {"kind": "Pod", "name": "ours", "namespace": namespace}
    body = {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": "ours", "labels": {"kubernetes.io/service-name": "ours"}},
        "addressType": "IPv4",
        "ports": [{"name": "http", "port": port, "protocol": "TCP"}],
        "endpoints": [{"addresses": [address], "conditions": {"ready": True}, "targetRef": target}],
    }
    cluster.parts.api.create(f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices", body)
    path = f"/api/v1/namespaces/{namespace}/services/ours:http/proxy/x"
    request = ApiRequest("GET", path, for_proxied={TOKEN_HEADER: "mine", "Authorization": "Bearer mine"})
    eventually(lambda: cluster.parts.api.answer(request).status == 200, "the proxy leads there")
    assert headers[-1]["kompakt-token"] == "mine"
    assert not [name for name in headers[-1] if name == "authorization" or name.startswith("x-remote")], headers[-1]


def test_the_api_server_accepts_service_and_network_policy(cluster: ClusterSession) -> None:
    ours = [found for found in cluster.parts.chart if found["kind"] in ("Service", "NetworkPolicy")]
    assert {found["kind"] for found in ours} == {"Service", "NetworkPolicy"}
    text = yaml.safe_dump_all(ours)
    told = cluster.kubectl("apply", "--server-side", "--dry-run=server", "-f", "-", stdin=text)
    assert told.count("serverside-applied") == len(ours)
