"""What the API server refuses is said truly: which object, whose fault, and whether trying again is of use."""

from collections.abc import Mapping
from typing import Any

import pytest

from kompakt_client.errors import Rejected, rejection
from kompakt_core.contract import RESOURCE
from kompakt_operator.api import OperatorApi, jobs_path
from kompakt_operator.events import EventAnnouncer
from kompakt_operator.kueue import QUEUE_LABEL
from kompakt_operator.observed import Observed
from kompakt_operator.reconcile import Reconciler
from kompakt_operator.scrape import Scraper
from kompakt_operator.workqueue import Key, WorkQueue
from tests.support.operator.known import PlayedApi, knowing

Object = dict[str, Any]
KEY: Key = ("ml", "j")
INVALID = 'Service "j-a1" is invalid: spec.ports[0].port: Invalid value: 0: must be between 1 and 65535'
UNREAD = "Service in version v1 cannot be handled"
IMAGE = "spec.containers[0].image: Required value"
WEBHOOK = 'admission webhook "mesh.example.com" denied the request: not here'
QUOTA = 'services "j-a1" is forbidden: exceeded quota: small, requested: services=1, used: services=5, limited: services=5'


def job(*, labels: Mapping[str, str] | None = None, **run_policy: str) -> Object:
    template = {"spec": {"containers": [{"name": "trainer", "image": "i"}]}}
    role = {"name": "worker", "replicas": 1, "gpusPerReplica": 1, "template": template}
    meta = {"name": "j", "namespace": "ml", "uid": "u", "generation": 1, "resourceVersion": "5", "creationTimestamp": "t"}
    return {"metadata": {**meta, "labels": dict(labels or {})}, "spec": {"roles": [role], "runPolicy": run_policy}}


class Refusing(OperatorApi):
    """Takes everything but objects of one kind; the job's status is kept as written."""

    def __init__(self, obj: Object, plural: str, rejected: Rejected) -> None:
        self.obj, self.plural, self.rejected = obj, plural, rejected

    async def get(self, path: str, accept: str = "application/json", **query: str) -> Object:
        assert path == jobs_path(*KEY)
        return self.obj

    async def create(self, path: str, body: Mapping[str, Any], *, dry_run: bool = False) -> Object:
        if path.endswith(f"/{self.plural}"):
            raise self.rejected
        return dict(body)

    async def apply(self, path: str, body: Mapping[str, Any]) -> Object:
        self.obj = {**self.obj, "status": dict(body["status"])}
        return self.obj


async def reconciled(plural: str, code: int, message: str, **run_policy: str) -> tuple[Object, bool]:
    """The job's conditions that hold after it was reconciled twice, by type, and whether a third time is planned."""
    queue, api = WorkQueue(), Refusing(job(**run_policy), plural, rejection(code, "Invalid", message))
    both = Reconciler(api, knowing(), queue, Scraper(queue, 0), EventAnnouncer(api, "pod-a"), "runtime")
    await both.reconcile(KEY)
    await both.reconcile(KEY)
    held = {c["type"]: c for c in api.obj["status"]["conditions"] if c["status"] == "True"}
    return held, KEY in queue._held


# What of a gang cannot be made, the answer, and what its owner reads: type, reason and message of a condition.
REJECTED: dict[str, tuple[str, int, str, tuple[str, str, str]]] = {
    "an invalid Service": ("services", 422, INVALID, ("Stalled", "ServicesForbidden", f"Service j-a1: {INVALID}")),
    "an unreadable Service": ("services", 400, UNREAD, ("Stalled", "ServicesForbidden", f"Service j-a1: {UNREAD}")),
    "a Service that a webhook denies": ("services", 403, WEBHOOK, ("Stalled", "ServicesForbidden", f"Service j-a1: {WEBHOOK}")),
    "a budget": ("poddisruptionbudgets", 422, "m", ("Stalled", "PodDisruptionBudgetsForbidden", "PodDisruptionBudget j-a1: m")),
    "a quota of Services": ("services", 403, QUOTA, ("Reconciling", "QuotaExceeded", QUOTA)),
    "an invalid pod, the template's fault for good": ("pods", 422, IMAGE, ("Failed", "InvalidTemplate", IMAGE)),
    "a pod that a webhook denies": ("pods", 422, WEBHOOK, ("Stalled", "PodsForbidden", WEBHOOK)),
}


@pytest.mark.parametrize(("plural", "code", "message", "told"), REJECTED.values(), ids=REJECTED)
async def test_what_cannot_be_made_is_told_and_tried_again_unless_the_template_is_at_fault(
    plural: str, code: int, message: str, told: tuple[str, str, str]
) -> None:
    held, again = await reconciled(plural, code, message, evictions="Refuse")
    kind, reason, words = told
    assert (held[kind]["reason"], held[kind]["message"]) == (reason, words)
    assert ("Failed" in held, again) == (kind == "Failed", kind != "Failed")


async def test_what_is_no_verdict_on_the_object_rises() -> None:
    with pytest.raises(Rejected, match="the namespace is being changed"):
        await reconciled("services", 409, "the namespace is being changed")


@pytest.mark.parametrize(
    ("code", "message", "reason"),
    [(404, "the server could not find the requested resource", "QueuesNotServed"), (403, "no such right", "WorkloadsForbidden")],
)
async def test_a_workload_that_cannot_be_made_is_told_and_stays_told(code: int, message: str, reason: str) -> None:
    queue, api = WorkQueue(), Refusing(job(labels={QUEUE_LABEL: "team-a"}), "workloads", rejection(code, "Invalid", message))
    observed = Observed(PlayedApi(), queue, with_kueue=True)
    observed.kueue.set()
    both = Reconciler(api, observed, queue, Scraper(queue, 0), EventAnnouncer(api, "pod-a"), "runtime")
    told = list[Object]()
    for _ in range(4):
        await both.reconcile(KEY)
        told.append(api.obj["status"])
    held = {c["type"]: c["reason"] for c in told[-1]["conditions"] if c["status"] == "True"}
    assert held["Stalled"] == reason
    assert told[1:] == told[1:2] * 3, "written once"


class Changing(Refusing):
    """As a webhook would that has pods ask for one GPU more."""

    async def create(self, path: str, body: Mapping[str, Any], *, dry_run: bool = False) -> Object:
        assert not path.endswith("/workloads"), "it would be deleted again at once"
        if body["kind"] != "Pod":
            return dict(body)
        (container,) = body["spec"]["containers"]
        more = {**container, "resources": {"limits": {RESOURCE: "2"}}}
        return {**body, "spec": {**body["spec"], "containers": [more]}}


async def test_a_workload_that_would_not_ask_for_what_the_job_needs_is_not_made() -> None:
    queue, api = WorkQueue(), Changing(job(labels={QUEUE_LABEL: "team-a"}), "workloads", rejection(403, "Forbidden", ""))
    observed = Observed(PlayedApi(), queue, with_kueue=True)
    observed.kueue.set()
    await Reconciler(api, observed, queue, Scraper(queue, 0), EventAnnouncer(api, "pod-a"), "runtime").reconcile(KEY)
    (stalled,) = [c for c in api.obj["status"]["conditions"] if c["type"] == "Stalled"]
    assert "which webhook changes them?" in stalled["message"]
