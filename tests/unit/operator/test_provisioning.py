"""How ProvisioningRequests are written and read, and what becomes of one that cannot be made."""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kompakt_client.errors import Rejected, rejection
from kompakt_core import contract as c
from kompakt_core.contract import expected_pods
from kompakt_core.contract.expected_pods import ExpectedPods
from kompakt_core.job.provisioning import NodeRequest, RequestState
from kompakt_operator import provisioning
from kompakt_operator.api import OperatorApi, jobs_path
from kompakt_operator.events import EventAnnouncer
from kompakt_operator.observed import Observed
from kompakt_operator.reconcile import Reconciler
from kompakt_operator.scrape import Scraper
from kompakt_operator.workqueue import Key, WorkQueue
from tests.support.core.job_world import make_job
from tests.support.operator.known import OWNER, PlayedApi, encoded, tell

Object = dict[str, Any]
CLASS = "check-capacity.autoscaling.x-k8s.io"
KEY: Key = ("ml", "j")
GPUS = {"name": "trainer", "image": "i", "resources": {"limits": {c.RESOURCE: "2"}}}
POD = {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [GPUS], "schedulingGates": [{"name": c.GATE}]}}
SINCE = "2026-01-01T00:00:00Z"
ROLES = [{"name": "ps", "replicas": 1, "gpusPerReplica": 0}, {"name": "worker", "replicas": 2, "gpusPerReplica": 2}]


def request(*conditions: tuple[str, str, str], **meta: Any) -> Object:
    """With conditions as type, status and message."""
    told = [{"type": kind, "status": status, "message": words, "lastTransitionTime": SINCE} for kind, status, words in conditions]
    made = provisioning.request(make_job(roles=ROLES), 3, CLASS)
    return {**made, "metadata": {**made["metadata"], **meta}, "status": {"conditions": told}}


ACCEPTED, PROVISIONED = ("Accepted", "True", "is valid"), ("Provisioned", "True", "nodes come")


@pytest.mark.parametrize(
    ("conditions", "state", "message"),
    [
        ((), RequestState.PENDING, ""),
        ((ACCEPTED,), RequestState.PENDING, "is valid"),
        ((ACCEPTED, ("Provisioned", "False", "no capacity now")), RequestState.PENDING, "no capacity now"),
        ((ACCEPTED, PROVISIONED), RequestState.PROVISIONED, "nodes come"),
        ((("Failed", "False", ""), PROVISIONED), RequestState.PROVISIONED, "nodes come"),
        ((ACCEPTED, ("Failed", "True", "no node group fits")), RequestState.FAILED, "no node group fits"),
        ((PROVISIONED, ("BookingExpired", "True", "not used")), RequestState.FAILED, "not used"),
        ((PROVISIONED, ("CapacityRevoked", "True", "a node is gone")), RequestState.FAILED, "a node is gone"),
    ],
)
def test_what_conditions_say(conditions: Any, state: RequestState, message: str) -> None:
    found = provisioning.request_of(request(*conditions))
    assert (found.name, found.class_name, found.templates) == ("j-a3", CLASS, ("j-ps-a3", "j-worker-a3"))
    assert (found.state, found.message) == (state, message)
    assert found.since == (1767225600.0 if state is RequestState.FAILED else None)


def test_one_that_is_deleted_is_not_what_it_was() -> None:
    assert provisioning.request_of(request(PROVISIONED, deletionTimestamp=SINCE)).state is RequestState.DELETED


def test_a_request_counts_the_pods_of_each_role_as_the_api_server_would_admit_them() -> None:
    job = make_job(roles=ROLES)
    ps, worker = provisioning.templates(job, 3, {"ps": POD, "worker": POD})
    assert [one["metadata"]["name"] for one in (ps, worker)] == ["j-ps-a3", "j-worker-a3"]
    assert worker["template"] == {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [GPUS]}}
    made = provisioning.request(job, 3, CLASS)["spec"]
    assert made["podSets"] == [
        {"count": 1, "podTemplateRef": {"name": "j-ps-a3"}},
        {"count": 2, "podTemplateRef": {"name": "j-worker-a3"}},
    ]


def test_pods_name_the_request_and_keep_what_they_say() -> None:
    pod = {"metadata": {"annotations": {"a": "b"}}, "spec": {}}
    notes = provisioning.consuming(pod, NodeRequest("j-a3", CLASS))["metadata"]["annotations"]
    group = "autoscaling.x-k8s.io"
    assert notes == {"a": "b", f"{group}/consume-provisioning-request": "j-a3", f"{group}/provisioning-class-name": CLASS}


@pytest.mark.parametrize(("owners", "seen"), [([OWNER], True), ([], False), ([{**OWNER, "controller": False}], False)])
def test_it_is_the_job_s_whose_controller_the_job_is(owners: list[Object], seen: bool) -> None:
    assert (provisioning.read_request(encoded(request(ownerReferences=owners))) is not None) == seen


JSON = st.recursive(st.none() | st.integers() | st.text(), lambda one: st.dictionaries(st.text(), one), max_leaves=4)


@given(st.dictionaries(st.sampled_from(["type", "status", "message", "lastTransitionTime"]), JSON))
def test_whatever_an_autoscaler_writes_can_be_read(condition: Object) -> None:
    found = provisioning.request_of({**request(), "status": {"conditions": [condition]}})
    assert (found.name, found.templates) == ("j-a3", ("j-ps-a3", "j-worker-a3"))


class Server(OperatorApi):
    """Keeps the job's status and what is made; refuses one kind."""

    def __init__(self, rejected: Rejected | None = None, plural: str = provisioning.PLURAL) -> None:
        expected = expected_pods.encode(ExpectedPods(1, SINCE, {"worker": {}}))
        template = {"spec": {"containers": [{"name": "trainer", "image": "i"}]}}
        role = {"name": "worker", "replicas": 2, "gpusPerReplica": 2, "template": template}
        meta = {"name": "j", "namespace": "ml", "uid": "u", "generation": 1, "resourceVersion": "5", "creationTimestamp": SINCE}
        scheduling = {"attempt": 1, "state": "Waiting", "reason": "NeverFits"}
        status = {"attempt": 1, "phase": "Pending", "expectedPods": expected, "scheduling": scheduling}
        self.obj: Object = {"metadata": meta, "spec": {"roles": [role]}, "status": status}
        self.made, self.written = list[tuple[str, Object]](), 0
        self.rejected, self.plural = rejected, plural

    async def get(self, path: str, accept: str = "application/json", **query: str) -> Object:
        return self.obj if path == jobs_path(*KEY) else {}  # no quotas

    async def create(self, path: str, body: Mapping[str, Any], *, dry_run: bool = False) -> Object:
        if self.rejected is not None and path.endswith(f"/{self.plural}"):
            raise self.rejected
        if not dry_run:
            self.made.append((path, dict(body)))
        return dict(body)

    async def apply(self, path: str, body: Mapping[str, Any]) -> Object:
        self.written += 1
        self.obj = {**self.obj, "status": {**body["status"], "scheduling": self.obj["status"]["scheduling"]}}
        return self.obj


def reconciler(api: Server, *, served: bool = True, request: Object | None = None) -> Reconciler:
    queue = WorkQueue()
    observed = Observed(PlayedApi(), queue, with_autoscaler=True)
    if served:
        observed.autoscaler.set()
    if request is not None:
        tell(observed, request)
    scraper, announcer = Scraper(queue, 0), EventAnnouncer(api, "pod-a")
    return Reconciler(api, observed, queue, scraper, announcer, "runtime", planner_patience=30, provisioning_class=CLASS)


async def test_the_request_is_made_after_what_it_points_at() -> None:
    api = Server()
    await reconciler(api).reconcile(KEY)
    assert [path for path, _ in api.made] == [
        "/api/v1/namespaces/ml/podtemplates",
        "/apis/autoscaling.x-k8s.io/v1/namespaces/ml/provisioningrequests",
    ]
    assert api.made[1][1]["spec"]["podSets"] == [{"count": 2, "podTemplateRef": {"name": "j-worker-a1"}}]


async def test_where_nobody_serves_them_none_is_made() -> None:
    api = Server()
    await reconciler(api, served=False).reconcile(KEY)
    assert api.made == []


async def test_pods_that_have_room_name_their_request() -> None:
    api = Server()
    api.obj["status"]["scheduling"] |= {"state": "Reserved", "reason": "CreatingPods", "plan": {"level": "Machine"}}
    found = provisioning.request(make_job(), 1, CLASS)
    await reconciler(api, request={**found, "metadata": {**found["metadata"], "uid": "r"}}).reconcile(KEY)
    pods = [body for path, body in api.made if path.endswith("/pods")]
    assert [pod["metadata"]["annotations"][provisioning.CONSUMES] for pod in pods] == ["j-a1", "j-a1"]


@pytest.mark.parametrize(
    ("plural", "code", "reason"),
    [
        (provisioning.PLURAL, 404, "ProvisioningRequestsForbidden"),
        (provisioning.PLURAL, 403, "ProvisioningRequestsForbidden"),
        (provisioning.TEMPLATES, 403, "PodTemplatesForbidden"),
    ],
)
async def test_a_request_that_cannot_be_made_is_told_and_the_gang_waits_on(plural: str, code: int, reason: str) -> None:
    api = Server(rejection(code, "Invalid", "not here"), plural)
    both, written = reconciler(api), list[int]()
    for _ in range(4):
        await both.reconcile(KEY)
        written.append(api.written)
    held = {one["type"]: one["reason"] for one in api.obj["status"]["conditions"] if one["status"] == "True"}
    assert held["Stalled"] == reason
    assert api.obj["status"]["expectedPods"]["attempt"] == 1, "the planner still knows it"
    assert written[1:] == written[1:2] * 3
