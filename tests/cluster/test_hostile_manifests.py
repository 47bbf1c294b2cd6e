"""A tenant with the role `edit` in one namespace sends what a grammar makes, and changes and deletes it: nobody else notices.

KOMPAKT_HOSTILE says how many manifests (30 unless it is set), KOMPAKT_SEED repeats a run. With `-s` it prints its figures.
"""

import os
import random
import secrets
import statistics
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from kompakt_client.errors import ApiError
from kompakt_client.requests import MERGE_PATCH, ApiRequest
from kompakt_client.transport import ApiClient, connect
from kompakt_core.contract import RESOURCE
from tests.support.cluster.hostile_manifests import PATHS, HostileChance, Manifest
from tests.support.cluster.memory import memory_limit, resident
from tests.support.cluster.reading import gpus_of
from tests.support.turns import in_turn
from tools.kube.jobs import JobManifest, apply, training_job
from tools.kube.parts import Pair, account_token
from tools.kube.pki import token_kubeconfig
from tools.kube.session import ClusterSession, eventually

pytestmark = [pytest.mark.usefixtures("watched"), in_turn(1)]
MANIFESTS = int(os.environ.get("KOMPAKT_HOSTILE", "30"))
SEED = int(os.environ.get("KOMPAKT_SEED", "0")) or secrets.randbelow(1 << 31)
STANDING = 50  # manifests after which all that stands of them is deleted
QUIET = max(5, MANIFESTS // 50)  # jobs of another tenant before the hostile one begins
LOOK = 0.01
SHARE = 0.8  # of its memory limit that a part may take
# So that the others' jobs have room at all times; how much a tenant may take is an administrator's to say.
QUOTA = {f"requests.{RESOURCE}": "8", "pods": "100", "count/trainingjobs.kompakt.dev": "100"}
NO_WAIT = {"consolidation": {"mode": "NoWait"}}


@pytest.fixture
def hostile(kompakt: ClusterSession) -> Iterator[str]:
    """The namespace of the tenant."""
    yield from own(kompakt, "hostile")


@pytest.fixture
def probing(kompakt: ClusterSession) -> Iterator[str]:
    """A namespace of another, whose jobs are measured."""
    yield from own(kompakt, "probing")


def own(cluster: ClusterSession, name: str) -> Iterator[str]:
    name = f"{name}-{uuid.uuid4().hex[:6]}"
    cluster.core.create_namespace({"metadata": {"name": name}})
    eventually(lambda: cluster.core.list_namespaced_service_account(name).items, f"ServiceAccount in {name}")
    yield name
    clear(connect(cluster.kubeconfig), name)
    eventually(lambda: not cluster.core.list_namespaced_pod(name).items, f"all pods of {name} gone")
    cluster.core.delete_namespace(name)


def clear(api: ApiClient, namespace: str) -> None:
    """Delete all that a manifest can make there."""
    for path in PATHS.values():
        api.request("DELETE", path.format(namespace))


@dataclass
class Tenant:
    """Sends requests until it has sent enough or is stopped."""

    api: ApiClient
    chance: HostileChance
    answers: Counter[str] = field(default_factory=Counter)
    living: list[tuple[str, str]] = field(default_factory=list)

    def send(self, number: int) -> None:
        """One manifest, and now and then a change of an earlier one, and an end of all of them."""
        self._create(self.chance.manifest())
        if self.living and number % 3 == 0:
            plural, path = self.chance.random.choice(self.living)
            part = self.chance.random.choice(("", "", "/status"))
            self._count("change", ApiRequest("PATCH", path + part, body=self.chance.change(plural), content_type=MERGE_PATCH))
        if number % STANDING == STANDING - 1:
            clear(self.api, self.chance.namespace)
            self.living.clear()

    def _create(self, manifest: Manifest) -> None:
        collection = PATHS[manifest.plural].format(self.chance.namespace)
        if self._count(manifest.plural, ApiRequest("POST", collection, body=manifest.body)):
            self.living.append((manifest.plural, f"{collection}/{manifest.body['metadata']['name']}"))

    def _count(self, what: str, request: ApiRequest) -> bool:
        try:
            status = self.api.answer(request).status
        except ApiError:
            status = 0
        self.answers[f"{what} {status}"] += 1
        return 200 <= status < 300


@dataclass
class Gauge:
    """The most memory that each part took, and the processes that it was."""

    cluster: ClusterSession
    parts: dict[str, str]  # component -> container of the chart
    most: Counter[str] = field(default_factory=Counter)
    pids: dict[str, set[int]] = field(default_factory=dict)

    def look(self) -> None:
        for part in self.parts:
            for pid, size in resident(self.cluster, part).items():
                self.most[part] = max(self.most[part], size)
                self.pids.setdefault(part, set()).add(pid)

    def shares(self) -> dict[str, float]:
        """Of the memory limit that the chart gives it."""
        return {part: self.most[part] / memory_limit(self.cluster, container) for part, container in self.parts.items()}


@contextmanager
def in_background(act: Callable[[threading.Event], None]) -> Iterator[threading.Thread]:
    stop = threading.Event()
    thread = threading.Thread(target=act, args=(stop,))
    thread.start()
    try:
        yield thread
    finally:
        stop.set()
        thread.join()


def bound_after(cluster: ClusterSession, api: ApiClient, namespace: str, number: int) -> float:
    """Seconds from the creation of a job of one worker to its binding; the job is deleted then."""
    began = time.monotonic()
    job = apply(cluster, namespace, training_job(f"probe-{number}", gpus=1, seconds=None, placement=NO_WAIT))
    path = f"/api/v1/namespaces/{namespace}/pods/{job.name}-worker-0-a1"

    def bound() -> bool:
        answer = api.request("GET", path)
        return answer.ok and b'"nodeName"' in answer.body

    while not bound():
        assert time.monotonic() < began + 120, job.story()
        time.sleep(LOOK)
    took = time.monotonic() - began
    job.delete()
    return took


def versions(api: ApiClient, namespace: str) -> dict[str, str]:
    """What stands in a namespace, by uid, and in which version."""
    found = [one for path in PATHS.values() for one in api.get(path.format(namespace))["items"]]
    return {one["metadata"]["uid"]: one["metadata"]["resourceVersion"] for one in found}


@pytest.fixture
def bystander(kompakt: ClusterSession, namespace: str) -> JobManifest:
    """A running gang of somebody else, and one of each kind beside it."""
    api, meta = connect(kompakt.kubeconfig), {"metadata": {"name": "bystander"}}
    specs: dict[str, dict[str, Any]] = {
        "services": {"spec": {"clusterIP": "None", "selector": {"app": "other"}}},
        "configmaps": {"data": {"a": "b"}},
        "secrets": {"stringData": {"a": "b"}},
        "poddisruptionbudgets": {"spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "other"}}}},
    }
    for plural, body in specs.items():
        api.create(PATHS[plural].format(namespace), {**meta, **body})
    job = apply(kompakt, namespace, training_job("gang", replicas=2, gpus=2, seconds=None, placement=NO_WAIT))
    job.await_phase("Running")
    return job


@pytest.fixture
def tenant(kompakt: ClusterSession, hostile: str, bystander: JobManifest) -> Tenant:
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"}
    account = {"kind": "ServiceAccount", "name": "default", "namespace": hostile}
    path = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{hostile}/rolebindings"
    admin, plane = connect(kompakt.kubeconfig), kompakt.plane
    admin.create(path, {"metadata": {"name": "edit"}, "roleRef": role, "subjects": [account]})
    kompakt.core.create_namespaced_resource_quota(hostile, {"metadata": {"name": "share"}, "spec": {"hard": QUOTA}})
    token = account_token(admin, "default", hostile)
    file = token_kubeconfig(
        plane.folder / f"{hostile}.kubeconfig", plane.addresses.server, plane.keys.authority.certificate_file, token
    )
    victim = (bystander.name, bystander.read()["metadata"]["uid"])
    api, chance = connect(file), random.Random(SEED)
    eventually(lambda: api.request("GET", PATHS["trainingjobs"].format(hostile)).ok, "the role is in force")
    return Tenant(api, HostileChance(chance, hostile, victim, tuple(sorted(gpus_of(bystander)))))


def told(times: list[float]) -> str:
    last = statistics.quantiles(times, n=100, method="inclusive")[-1]
    return f"{len(times)} jobs, p50 {statistics.median(times):.2f} s, p99 {last:.2f} s, most {max(times):.2f} s"


@pytest.mark.timeout(300 + MANIFESTS)
def test_a_hostile_tenant_harms_nobody(
    kompakt: ClusterSession, pair: Pair, namespace: str, probing: str, bystander: JobManifest, tenant: Tenant
) -> None:
    print(f"KOMPAKT_SEED={SEED}")
    api = connect(kompakt.kubeconfig)
    gauge = Gauge(kompakt, {"operator-0": "operator", pair.extender: "extender", pair.scheduler: "kube-scheduler"})
    quiet = [bound_after(kompakt, api, probing, number) for number in range(QUIET)]
    before, gpus, loud = versions(api, namespace), gpus_of(bystander), list[float]()

    def attack(stop: threading.Event) -> None:
        for number in range(MANIFESTS):
            if stop.is_set():
                return
            tenant.send(number)

    gauge.look()
    began = time.monotonic()
    with in_background(attack) as attacking:
        while attacking.is_alive():
            loud.append(bound_after(kompakt, api, probing, QUIET + len(loud)))
            gauge.look()
    print(f"{tenant.answers.total()} requests in {time.monotonic() - began:.0f} s: {dict(sorted(tenant.answers.items()))}")
    print(f"apply to bound: quiet {told(quiet)}; beside it {told(loud)}")
    print(f"most of its memory limit: { {part: f'{share:.0%}' for part, share in gauge.shares().items()} }")
    assert versions(api, namespace) == before, "something of others changed"
    assert gpus_of(bystander) == gpus
    assert {part: len(pids) for part, pids in gauge.pids.items()} == dict.fromkeys(gauge.parts, 1), "a part restarted"
    assert max(gauge.shares().values()) < SHARE
    # Of a few it may be that all are refused.
    assert MANIFESTS < 300 or min(tenant.answers["trainingjobs 201"], tenant.answers["pods 201"]) > MANIFESTS // 50
    apply(kompakt, namespace, training_job("honest", replicas=2, gpus=2)).await_phase("Succeeded")
