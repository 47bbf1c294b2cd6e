"""What the API server refuses is said truly: which object, whose fault, and whether trying again is of use."""

from collections.abc import Mapping
from typing import Any

import pytest

from kompakt_client.errors import Rejected, rejection
from kompakt_operator.api import OperatorApi, jobs_path
from kompakt_operator.events import EventAnnouncer
from kompakt_operator.reconcile import Reconciler
from kompakt_operator.scrape import Scraper
from kompakt_operator.workqueue import Key, WorkQueue
from tests.support.operator.known import knowing

Object = dict[str, Any]
KEY: Key = ("ml", "j")
INVALID = 'Service "j-a1" is invalid: spec.ports[0].port: Invalid value: 0: must be between 1 and 65535'
WEBHOOK = 'admission webhook "mesh.example.com" denied the request: not here'
QUOTA = 'services "j-a1" is forbidden: exceeded quota: small, requested: services=1, used: services=5, limited: services=5'


def job(**run_policy: str) -> Object:
    template = {"spec": {"containers": [{"name": "trainer", "image": "i"}]}}
    role = {"name": "worker", "replicas": 1, "gpusPerReplica": 1, "template": template}
    meta = {"name": "j", "namespace": "ml", "uid": "u", "generation": 1, "resourceVersion": "5", "creationTimestamp": "t"}
    return {"metadata": meta, "spec": {"roles": [role], "runPolicy": run_policy}}


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


async def looked(plural: str, code: int, message: str, **run_policy: str) -> tuple[Object, bool]:
    """The job's conditions that hold after two looks, by type, and whether a third one is planned."""
    queue, api = WorkQueue(), Refusing(job(**run_policy), plural, rejection(code, "Invalid", message))
    both = Reconciler(api, knowing(), queue, Scraper(queue, 0), EventAnnouncer(api, "pod-a"), "runtime")
    await both.reconcile(KEY)
    await both.reconcile(KEY)
    held = {c["type"]: c for c in api.obj["status"]["conditions"] if c["status"] == "True"}
    return held, KEY in queue._held


@pytest.mark.parametrize(("code", "message"), [(422, INVALID), (400, "Service in version v1 cannot be handled"), (403, WEBHOOK)])
async def test_a_service_that_cannot_be_made_is_not_the_templates_fault(code: int, message: str) -> None:
    held, again = await looked("services", code, message)
    assert (held["Stalled"]["reason"], held["Stalled"]["message"]) == ("ServicesForbidden", f"Service j-a1: {message}")
    assert "Failed" not in held
    assert again


async def test_a_budget_that_cannot_be_made_is_named() -> None:
    held, again = await looked("poddisruptionbudgets", 422, "spoilt", evictions="Refuse")
    assert (held["Stalled"]["reason"], again) == ("PodDisruptionBudgetsForbidden", True)
    assert held["Stalled"]["message"] == "PodDisruptionBudget j-a1: spoilt"


async def test_a_quota_of_services_is_a_quota() -> None:
    held, again = await looked("services", 403, QUOTA)
    assert (held["Reconciling"]["reason"], held["Reconciling"]["message"], again) == ("QuotaExceeded", QUOTA, True)


async def test_a_pod_that_cannot_be_read_is_the_templates_fault_for_good() -> None:
    held, again = await looked("pods", 422, "spec.containers[0].image: Required value")
    assert (held["Failed"]["reason"], again) == ("InvalidTemplate", False)


async def test_a_pod_that_a_webhook_refuses_may_be_taken_later() -> None:
    held, again = await looked("pods", 422, WEBHOOK)
    assert (held["Stalled"]["reason"], held["Stalled"]["message"], again) == ("PodsForbidden", WEBHOOK, True)


async def test_what_is_no_verdict_on_the_object_rises() -> None:
    with pytest.raises(Rejected, match="the namespace is being changed"):
        await looked("services", 409, "the namespace is being changed")
