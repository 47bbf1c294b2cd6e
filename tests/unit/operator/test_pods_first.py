"""What pods will ask for is written to the job's status, unless somebody else has to see the pods first."""

from collections.abc import Mapping
from typing import Any

import pytest

from kompakt_client.errors import Rejected
from kompakt_core import contract as c
from kompakt_core.contract.expected_pods import ExpectedPods, readable, trimmed
from kompakt_operator.api import OperatorApi, jobs_path
from kompakt_operator.events import EventAnnouncer
from kompakt_operator.pods_first import MOST_BYTES, reason
from kompakt_operator.reconcile import Reconciler
from kompakt_operator.scrape import Scraper
from kompakt_operator.workqueue import Key, WorkQueue
from tests.support.operator.known import knowing

Object = dict[str, Any]
KEY: Key = ("ml", "j")


def job(**spec: Any) -> Object:
    template = {"spec": {"containers": [{"name": "trainer", "image": "i"}], **spec}}
    role = {"name": "worker", "replicas": 3, "gpusPerReplica": 2, "template": template}
    meta = {"name": "j", "namespace": "ml", "uid": "u", "generation": 1, "resourceVersion": "5", "creationTimestamp": "t"}
    return {"metadata": meta, "spec": {"roles": [role]}}


class Admitting(OperatorApi):
    """Answers to a dry run with a class's priority, as an admission plugin sets it."""

    def __init__(self, obj: Object, dropped: str = "") -> None:
        """`dropped`: a field of the status that the CRD does not have."""
        self.dropped = dropped
        self.obj, self.made, self.tried = obj, list[str](), list[str]()

    async def get(self, path: str, accept: str = "application/json", **query: str) -> Object:
        return self.obj if path == jobs_path(*KEY) else {}

    async def create(self, path: str, body: Mapping[str, Any], *, dry_run: bool = False) -> Object:
        if body["kind"] != "Pod":
            return dict(body)
        (self.tried if dry_run else self.made).append(body["metadata"]["name"])
        return {**body, "spec": {**body["spec"], "priority": 7}}

    async def apply(self, path: str, body: Mapping[str, Any]) -> Object:
        self.obj = {**self.obj, "status": {name: value for name, value in body["status"].items() if name != self.dropped}}
        return self.obj


async def reconciled(api: Admitting, times: int = 2) -> ExpectedPods | None:
    queue = WorkQueue()
    scraper, announcer = Scraper(queue, 0), EventAnnouncer(api, "pod-a")
    both = Reconciler(api, knowing(), queue, scraper, announcer, "runtime", planner_patience=30)
    for _ in range(times):
        await both.reconcile(KEY)
    return readable(api.obj["status"].get("expectedPods"))


async def test_the_status_says_what_the_api_server_would_admit() -> None:
    api = Admitting(job(nodeSelector={"pool": "a"}))
    expected = await reconciled(api)
    assert expected is not None
    assert (api.tried, api.made) == (["j-worker-0-a1"], [])
    spec = expected.pods["worker"]["spec"]
    assert (spec["priority"], spec["nodeSelector"]) == (7, {"pool": "a"})
    assert spec["containers"][0]["resources"]["requests"] == {c.RESOURCE: "2"}
    assert api.obj["status"]["phase"] == "Pending"


async def test_pods_that_others_have_to_see_come_first() -> None:
    api = Admitting(job(schedulingGates=[{"name": "else.example/gate"}]))
    expected = await reconciled(api)
    assert expected is not None
    assert (expected.pods, "else.example/gate" in expected.reason) == ({}, True)
    assert len(api.made) == 3


async def test_a_gang_whose_service_cannot_be_created_is_shown_to_nobody() -> None:
    class Taken(Admitting):
        async def create(self, path: str, body: Mapping[str, Any], *, dry_run: bool = False) -> Object:
            if body["kind"] == "Service":
                raise Rejected("exists", 409, "AlreadyExists")
            return await super().create(path, body, dry_run=dry_run)

        async def get(self, path: str, accept: str = "application/json", **query: str) -> Object:
            return {"metadata": {}} if "/services/" in path else await super().get(path, accept, **query)

    api = Taken(job())
    assert await reconciled(api, times=1) is None
    assert (api.tried, api.made) == ([], [])
    assert any(one["reason"] == "NameTaken" for one in api.obj["status"]["conditions"])


async def test_pods_come_first_where_the_crd_is_an_earlier_one(caplog: pytest.LogCaptureFixture) -> None:
    api = Admitting(job(), dropped="expectedPods")
    assert await reconciled(api) is None
    assert len(api.made) == 3
    assert "the CRD of TrainingJob has no status.expectedPods" in caplog.text


def test_what_is_too_large_for_a_status_is_not_written() -> None:
    large = trimmed({"spec": {"nodeSelector": {"pool": "x" * MOST_BYTES}}})
    assert f"at most {MOST_BYTES}" in reason([large])
    assert reason([trimmed({"spec": {"nodeSelector": {"pool": "x" * 1000}}})]) == ""
