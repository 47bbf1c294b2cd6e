"""Which jobs a watch or a list puts in line, and what is done about what jobs leave behind: decided without an API server."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from typing import Any, cast

import pytest

from kompakt_client.errors import Rejected, rejection
from kompakt_core import contract
from kompakt_core.job import actions
from kompakt_core.job import to_do as do
from kompakt_core.job.spec import parse_job
from kompakt_core.job.status import read_status
from kompakt_operator.api import OperatorApi
from kompakt_operator.crd import DEFINITIONS, is_gone, served
from kompakt_operator.events import EventAnnouncer
from kompakt_operator.garbage_collector import COLLECTOR_SECONDS, GarbageCollector, left_behind
from kompakt_operator.observed import Observed
from kompakt_operator.reconcile import Reconciler
from kompakt_operator.scrape import Scraper
from kompakt_operator.workqueue import Key, WorkQueue
from tests.support.operator import known
from tests.support.operator.known import JOB, knowing, service, tell

KEY: Key = ("ml", "j")


def job(**spec: Any) -> dict[str, Any]:
    template = {"spec": {"containers": [{"name": "trainer", "image": "i"}]}}
    role = {"name": "worker", "replicas": 1, "gpusPerReplica": 1, "template": template}
    meta = {"name": "j", "namespace": "ml", "uid": "u", "generation": 1, "resourceVersion": "5"}
    return {"metadata": meta, "spec": {"roles": [role], **spec}}


def pod(phase: str = "Running", **meta: Any) -> dict[str, Any]:
    return known.pod(phase=phase, **meta)


class Asked(OperatorApi):
    """Answers what it was told to; whoever asks for anything else has asked too much."""

    def __init__(self, answers: Mapping[str, Any]) -> None:
        self.answers, self.deleted = answers, list[tuple[str, str, str]]()

    async def get(self, path: str, accept: str = "application/json", **query: str) -> dict[str, Any]:
        found = self.answers[path]
        if isinstance(found, Exception):
            raise found
        return cast(dict[str, Any], found)

    async def listed(self, path: str, **query: str) -> AsyncIterator[dict[str, Any]]:
        for obj in (await self.get(path, **query)).get("items") or ():
            yield obj

    async def delete(self, path: str, uid: str, version: str, *, grace: int | None = None) -> dict[str, Any]:
        self.deleted.append((path, uid, version))
        return {}


def reconciler(observed: Observed, queue: WorkQueue) -> Reconciler:
    api = Asked({})
    return Reconciler(api, observed, queue, Scraper(queue, 0), EventAnnouncer(api, "pod-a"), "runtime")


def settled(observed: Observed, obj: dict[str, Any], now: float = 1e9) -> dict[str, Any]:
    """The job with the status that reconciling would write."""
    for _ in range(3):
        read, parsed = read_status(obj), parse_job(obj)
        services = observed.services(JOB)
        wanted = actions.next_actions(parsed, read, observed.pods(JOB), services, now, runtime="runtime")
        obj |= {"status": next((dict(a.status) for a in wanted if isinstance(a, do.WriteStatus)), obj.get("status", {}))}
    return obj


async def in_line(observed: Observed, obj: dict[str, Any]) -> bool:
    """Whether noticing the job puts it in line."""
    queue = WorkQueue()
    reconciler(observed, queue).notice(obj)
    return len(queue) == 1


def running() -> tuple[Observed, dict[str, Any]]:
    observed, obj = knowing(service(), pod()), job()
    obj["status"] = {"attempt": 1, "phase": "Pending"}
    return observed, settled(observed, obj)


async def test_a_new_job_is_put_in_line_and_one_at_rest_is_not() -> None:
    suspended = job(suspend=True)
    assert await in_line(knowing(), suspended)
    assert not await in_line(knowing(), settled(knowing(), suspended))
    observed, obj = running()
    assert obj["status"]["phase"] == "Running"
    assert not await in_line(observed, obj)


@pytest.mark.parametrize("change", [{"phase": "Succeeded"}, {"phase": "Failed"}, {"deletionTimestamp": "t"}])
async def test_a_job_whose_worker_ended_or_goes_is_put_in_line(change: dict[str, str]) -> None:
    observed, obj = running()
    tell(observed, pod(**change))
    assert await in_line(observed, obj)


async def test_a_job_whose_spec_changed_or_cannot_be_read_is_put_in_line() -> None:
    observed, obj = running()
    assert await in_line(observed, obj | {"spec": {**obj["spec"], "suspend": True}})
    assert await in_line(observed, obj | {"spec": {}})


async def test_a_job_that_cannot_even_be_judged_is_put_in_line_and_the_others_of_the_list_are_noticed() -> None:
    assert await in_line(knowing(), job() | {"status": {"scheduling": "what no schema allows"}})


async def test_a_finished_job_at_rest_still_goes_when_its_time_to_live_is_over() -> None:
    """Nothing but the wake-up is noted now, and at that moment the job is put in line."""
    ended = [{"type": "Complete", "status": "True", "reason": "r", "message": "", "lastTransitionTime": "t"}]
    obj = job(runPolicy={"ttlSecondsAfterFinished": 0})
    obj["status"] = {"attempt": 1, "phase": "Succeeded", "conditions": ended, "completionTime": "2099-01-01T00:00:00Z"}
    queue = WorkQueue()
    both = reconciler(knowing(), queue)
    both.notice(obj)
    before = len(queue)
    obj["status"]["completionTime"] = "2001-01-01T00:00:00Z"
    both.notice(obj)
    assert (before, len(queue)) == (0, 1)


async def test_what_a_job_leaves_is_removed_only_when_the_collector_had_its_time() -> None:
    api = Asked(
        {"/api/v1/namespaces/ml/pods": {"items": [pod(resourceVersion="7")]}, "/api/v1/namespaces/ml/services": {"items": []}}
    )
    collector, loop = GarbageCollector(api, knowing(pod()), WorkQueue()), asyncio.get_running_loop()
    counts = []
    for seconds in (0.0, COLLECTOR_SECONDS - 1, COLLECTOR_SECONDS):
        loop.time = lambda later=seconds: 1000.0 + later  # type: ignore[method-assign,misc]
        await collector.reconcile(KEY, "")
        counts.append(len(api.deleted))
    assert counts == [0, 0, 1]
    assert api.deleted == [("/api/v1/namespaces/ml/pods/j-worker-0-a1", "p", "7")]


async def test_a_living_job_has_no_strays() -> None:
    api = Asked({})
    collector, loop = GarbageCollector(api, knowing(pod()), WorkQueue()), asyncio.get_running_loop()
    for seconds in (0.0, 2 * COLLECTOR_SECONDS):
        loop.time = lambda later=seconds: 1000.0 + later  # type: ignore[method-assign,misc]
        await collector.reconcile(KEY, "u")
    assert api.deleted == []


@pytest.mark.parametrize(
    ("meta", "wanted"),
    [({}, True), ({"ownerReferences": []}, False), ({"deletionTimestamp": "t"}, False), ({"ownerReferences": None}, False)],
    ids=["left", "orphaned on purpose", "going", "never owned"],
)
def test_only_what_belongs_to_the_missing_job_and_stays_is_left_behind(meta: dict[str, Any], wanted: bool) -> None:
    assert left_behind(pod(**meta), JOB) is wanted
    assert not left_behind(pod(**meta), replace(JOB, uid="another"))
    assert not left_behind(pod(**meta), replace(JOB, name="another"))


@pytest.mark.parametrize(
    ("rejected", "crds", "gone"),
    [
        (rejection(404, "NotFound", ""), None, True),
        (rejection(403, "Forbidden", ""), None, False),
        (rejection(404, "", ""), {"items": []}, True),
        (rejection(404, "", ""), {"items": [{"metadata": {"uid": "d"}}]}, False),
        (rejection(404, "", ""), rejection(403, "Forbidden", ""), False),
    ],
    ids=["the job alone", "not allowed", "the CRD as well", "not served for a moment", "nobody may say"],
)
async def test_a_job_is_gone_when_it_or_its_crd_is_not_there(rejected: Rejected, crds: Any, gone: bool) -> None:
    assert await is_gone(Asked({DEFINITIONS: crds}), rejected) is gone


KINDS = {"resources": [{"name": contract.JOB_PLURAL}, {"name": "gputopologies"}]}


@pytest.mark.parametrize(
    ("kinds", "crds", "found"),
    [
        (KINDS, {"items": [{"metadata": {"uid": "d"}}]}, "d"),
        (KINDS, rejection(403, "Forbidden", ""), "one"),
        ({"resources": [{"name": "gputopologies"}]}, {"items": [{"metadata": {"uid": "d"}}]}, ""),
        (rejection(404, "", ""), {"items": []}, ""),
    ],
    ids=["served", "served, and more may not be asked", "defined and not served yet", "nothing is defined"],
)
async def test_a_crd_counts_when_it_is_served(kinds: Any, crds: Any, found: str) -> None:
    api = Asked({f"/apis/{contract.API_VERSION}": kinds, DEFINITIONS: crds})
    assert await served(api) == found
