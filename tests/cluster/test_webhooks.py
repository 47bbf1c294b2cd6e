"""Webhooks and policies change or refuse a gang's pods: what counts is the pods as stored, and a gang is whole or not there."""

import base64
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from kubernetes import client

from tests.support.cluster.reading import await_reason
from tools.kube.jobs import JobManifest, apply, training_job
from tools.kube.session import ClusterSession, eventually

Object = dict[str, Any]
Verdict = Callable[[Object], Object]
"""From an object that is to be created to `response` of an AdmissionReview, but its uid."""
ALLOWED: Object = {"allowed": True}


def adding(path: str, value: object) -> Verdict:
    """What changes every object on its way."""

    def verdict(_: Object) -> Object:
        patch = [{"op": "add", "path": path, "value": value}]
        return {**ALLOWED, "patchType": "JSONPatch", "patch": base64.b64encode(json.dumps(patch).encode()).decode()}

    return verdict


def with_sidecar(cpu: str) -> Verdict:
    """What injects a helper into every pod, as service meshes do."""
    return adding("/spec/containers/-", {"name": "sidecar", "image": "simulated", "resources": {"requests": {"cpu": cpu}}})


def refusing(index: str, code: int) -> Verdict:
    """What refuses the worker of that index, and no dry run of another one tells so."""

    def verdict(pod: Object) -> Object:
        refused = pod["metadata"]["labels"].get("kompakt.dev/worker-index") == index
        return {"allowed": False, "status": {"code": code, "message": f"no worker {index} here"}} if refused else ALLOWED

    return verdict


@dataclass
class Webhook:
    """A server on loopback whose verdict can be changed, and how often it was asked."""

    verdict: Verdict
    asked: list[str] = field(default_factory=list)

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
            self.send_response(200)
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


@pytest.fixture
def webhook(kompakt: ClusterSession, namespace: str) -> Iterator[Webhook]:
    """Asked about every pod of the namespace; until told otherwise it lets all pass as they are."""
    pod = {"metadata": {"name": "probe"}, "spec": {"containers": [{"name": "c", "image": "simulated"}]}}
    with hooked(kompakt, namespace, "pods", lambda: kompakt.core.create_namespaced_pod(namespace, pod, dry_run="All")) as found:
        yield found


@pytest.fixture
def service_webhook(kompakt: ClusterSession, namespace: str) -> Iterator[Webhook]:
    """The same about every Service."""
    body = {"metadata": {"name": "probe"}, "spec": {"clusterIP": "None"}}
    with hooked(
        kompakt, namespace, "services", lambda: kompakt.core.create_namespaced_service(namespace, body, dry_run="All")
    ) as found:
        yield found


@contextmanager
def hooked(cluster: ClusterSession, namespace: str, resource: str, probe: Callable[[], object]) -> Iterator[Webhook]:
    """A webhook in force; `probe` makes something of that kind called "probe" in a dry run."""
    found = Webhook(lambda _: ALLOWED)
    admission = client.AdmissionregistrationV1Api(cluster.api)
    with served(found, cluster) as port:
        authority = base64.b64encode(cluster.plane.keys.authority.certificate_file.read_bytes()).decode()
        rule = {"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": [resource]}
        hook = {
            "name": f"{resource}.example.com",
            "clientConfig": {"url": f"https://127.0.0.1:{port}/{resource}", "caBundle": authority},
            "rules": [rule],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
        }
        admission.create_mutating_webhook_configuration({"metadata": {"name": namespace}, "webhooks": [hook]})
        try:
            await_asked(found, probe)
            yield found
        finally:
            admission.delete_mutating_webhook_configuration(namespace)


def await_asked(webhook: Webhook, probe: Callable[[], object]) -> None:
    """The API server needs a moment to hear of a new webhook."""

    def asked() -> bool:
        probe()
        return "probe" in webhook.asked

    eventually(asked, "the webhook asked")


def quota(cluster: ClusterSession, namespace: str, cpu: str) -> None:
    body = {"metadata": {"name": "q"}, "spec": {"hard": {"requests.cpu": cpu}}}
    cluster.core.create_namespaced_resource_quota(namespace, body)


def gang(name: str, replicas: int) -> Object:
    made = training_job(name, replicas=replicas, gpus=2, seconds=None)
    made["spec"]["roles"][0]["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "100m"}}
    return made


def containers(job: JobManifest) -> list[list[str]]:
    return [[container.name for container in pod.spec.containers] for pod in job.pods()]


def test_a_quota_counts_what_a_webhook_injects_and_the_gang_is_whole_or_not_there(
    kompakt: ClusterSession, namespace: str, webhook: Webhook
) -> None:
    webhook.verdict = with_sidecar("900m")
    quota(kompakt, namespace, "3")  # enough for three of the four as they are stored, and for all as the template says
    job = apply(kompakt, namespace, gang("meshed", 4))
    await_reason(job, "QuotaExceeded", "Reconciling")
    eventually(lambda: not job.pods(), "what was made is removed again")
    kompakt.core.patch_namespaced_resource_quota("q", namespace, {"spec": {"hard": {"requests.cpu": "4"}}})
    job.await_phase("Running")
    assert containers(job) == [["trainer", "sidecar"]] * 4


def test_the_planner_counts_processors_of_what_a_webhook_injects(
    kompakt: ClusterSession, namespace: str, webhook: Webhook
) -> None:
    """Both pods fit on one machine by their GPUs and by their template; 40 of its 64 processors are one sidecar's."""
    webhook.verdict = with_sidecar("40")
    job = apply(kompakt, namespace, gang("wide", 2))
    job.await_phase("Running")
    assert len({pod.spec.node_name for pod in job.pods()}) == 2
    webhook.verdict = lambda _: ALLOWED
    plain = apply(kompakt, namespace, gang("narrow", 2))
    plain.await_phase("Running")
    assert len({pod.spec.node_name for pod in plain.pods()}) == 1


# 422 is what an admission policy answers by default.
@pytest.mark.parametrize("code", [403, 400, 422])
def test_a_gang_of_which_a_webhook_refuses_one_worker_is_removed_again_until_it_may_be_whole(
    kompakt: ClusterSession, namespace: str, webhook: Webhook, code: int
) -> None:
    webhook.verdict = refusing("2", code)
    job = apply(kompakt, namespace, gang("maimed", 3))
    assert "no worker 2 here" in await_reason(job, "PodsForbidden")
    eventually(lambda: not job.pods(), "what was made is removed again")
    assert {"maimed-worker-0-a1", "maimed-worker-1-a1", "maimed-worker-2-a1"} <= set(webhook.asked)
    assert not job.bound()
    webhook.verdict = lambda _: ALLOWED
    job.await_phase("Running")
    assert job.condition("Stalled")["status"] == "False"


def test_a_service_that_a_webhook_spoils_is_not_blamed_on_the_template(
    kompakt: ClusterSession, namespace: str, service_webhook: Webhook
) -> None:
    service_webhook.verdict = adding("/spec/ports", [{"port": 0}])
    job = apply(kompakt, namespace, gang("unserved", 2))
    message = await_reason(job, "ServicesForbidden")
    assert message.startswith("Service unserved-a1: ")
    assert "spec.ports[0].port" in message
    assert (job.phase, job.pods()) == ("Pending", [])
    service_webhook.verdict = lambda _: ALLOWED
    job.await_phase("Running")
    assert job.condition("Stalled")["status"] == "False"
