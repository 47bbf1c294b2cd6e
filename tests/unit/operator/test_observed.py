"""What the operator knows of pods, Services and GPUs, which jobs a change puts in line, and what a watch owes."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from kompakt_client.errors import rejection
from kompakt_client.requests import Answer, ApiRequest
from kompakt_core import contract
from kompakt_core.contract import job_owner
from kompakt_core.contract.job_owner import JobOwner
from kompakt_operator.observed import Observed
from kompakt_operator.workqueue import Key, WorkQueue
from tests.support.operator.known import JOB, LABELS, OWNER, PlayedApi, PlayedStream, knowing, pod, service, tell

KEY: Key = ("ml", "j")
OLD = JobOwner("ml", "j", "before")
BEFORE = {"labels": {**LABELS, contract.LABEL_JOB_UID: "before"}, "ownerReferences": [job_owner.encode(OLD)]}


@pytest.mark.parametrize(
    ("objects", "pods", "services", "jobs"),
    [
        ([], [], (), []),
        ([pod("a", "a"), pod("b", "b"), service()], ["a", "b"], ("j-a1",), [JOB]),
        ([service()], [], ("j-a1",), [JOB]),
        ([pod("a", "a", **BEFORE), pod("b", "b")], ["b"], (), [OLD, JOB]),
        ([pod(namespace="elsewhere")], [], (), []),
        ([pod(labels={contract.LABEL_JOB_UID: "u"})], [], (), []),
        ([pod(labels={})], [], (), []),
        ([pod(ownerReferences=None)], [], (), []),
        ([pod(ownerReferences=[{**OWNER, "controller": False}])], [], (), []),
        ([pod(labels={**LABELS, contract.LABEL_JOB_UID: "before"})], [], (), []),
    ],
    ids=[
        "nothing",
        "pods and a Service",
        "a Service alone",
        "an older job of the same name",
        "a stranger's pod with a job's labels in another namespace",
        "no worker",
        "nobody's pod",
        "a stranger's pod with a job's labels beside it",
        "a pod that another controls, and the job owns too",
        "a pod that its label finds with another job",
    ],
)
async def test_objects_are_found_by_job_and_jobs_by_name(
    objects: list[dict[str, Any]], pods: list[str], services: tuple[str, ...], jobs: list[JobOwner]
) -> None:
    observed = knowing(*objects)
    assert ([view.name for view in observed.pods(JOB)], observed.services(JOB)) == (pods, services)
    assert (observed.jobs_named(KEY), observed.knows(JOB)) == (jobs, JOB in jobs)
    assert observed.jobs_named(("ml", "another")) == []


async def watching(api: PlayedApi) -> tuple[Observed, WorkQueue]:
    """An operator that watches and has taken in what was there."""
    queue = WorkQueue()
    observed = Observed(api, queue)
    observed.start()
    await observed.ready()
    await in_line(queue)
    return observed, queue


async def in_line(queue: WorkQueue) -> list[Key]:
    """The keys in line, and no more than once each."""
    found = []
    while len(queue):
        found.append(await queue.take())
        queue.done(found[-1])
    return found


async def until(holds: Callable[[], Any]) -> None:
    async with asyncio.timeout(10):
        while not holds():
            await asyncio.sleep(0.005)


async def test_what_is_there_at_the_start_and_what_changes_later_puts_its_job_in_line() -> None:
    api, queue = PlayedApi(pods=[pod(resourceVersion="7")], services=[service()]), WorkQueue()
    observed = Observed(api, queue)
    observed.start()
    await observed.ready()
    assert await in_line(queue) == [KEY]
    assert (len(observed.pods(JOB)), observed.services(JOB)) == (1, ("j-a1",))
    api.show("pods", "DELETED", pod())
    await until(lambda: len(queue))
    assert (await in_line(queue), observed.pods(JOB)) == ([KEY], ())
    observed.stop()


class WithoutKueue(PlayedApi):
    """Serves everything but Workloads, until it does."""

    served = False

    def exchange(self, request: ApiRequest) -> Answer:
        if request.path.endswith("/workloads") and not self.served:
            raise rejection(404, "NotFound", "the server could not find the requested resource")
        return super().exchange(request)


async def test_where_kueue_is_gone_all_else_is_ready_and_its_coming_is_noticed() -> None:
    api = WithoutKueue()
    api.streams["workloads"] = PlayedStream()
    observed = Observed(api, WorkQueue(), with_kueue=True)
    observed.start()
    assert await observed.ready(10) == []
    assert "is Kueue installed?" in observed.without_kueue
    api.served = True
    await asyncio.wait_for(observed.kueue.wait(), 30)
    assert observed.without_kueue == ""
    observed.stop()


async def test_a_release_without_kueue_says_which_value_is_missing() -> None:
    assert "set kueue.enabled" in Observed(PlayedApi(), WorkQueue()).without_kueue


async def test_nothing_is_ready_before_everything_has_been_listed() -> None:
    observed = Observed(PlayedApi(), WorkQueue())
    observed._pods.start()
    observed._services.start()
    assert await observed.ready(0.1) == [contract.TOPOLOGY_PLURAL]
    observed.stop()


def topology(*unhealthy: str) -> dict[str, Any]:
    gpus = [
        {"uuid": uuid, "index": i, **({"health": "Unhealthy", "xid": 79} if uuid in unhealthy else {"health": "Healthy"})}
        for i, uuid in enumerate(("GPU-a", "GPU-b", "GPU-c"))
    ]
    return {"metadata": {"name": "n1", "uid": "t"}, "spec": {"gpus": gpus}}


async def test_a_gpu_that_becomes_unhealthy_puts_the_job_that_holds_it_in_line_and_no_other() -> None:
    api = PlayedApi(pods=[pod(gpus="GPU-a,GPU-b", resourceVersion="7")], gputopologies=[topology()])
    observed, queue = await watching(api)
    (view,) = observed.pods(JOB)

    async def shown(*unhealthy: str) -> list[Key]:
        version = api.show(contract.TOPOLOGY_PLURAL, "MODIFIED", topology(*unhealthy))
        await until(lambda: observed._topologies is not None and observed._topologies.store.reflected == version)
        await asyncio.sleep(0.02)  # until it is told
        return await in_line(queue)

    assert await shown("GPU-c") == []
    assert await shown("GPU-b", "GPU-c") == [KEY]
    assert observed.unhealthy_reason(view) == "GPU-b (index 1): XID 79"
    assert await shown("GPU-b", "GPU-c") == [], "known already"
    assert await shown() == []
    assert observed.unhealthy_reason(view) == ""
    observed.stop()


async def test_a_restored_etcd_is_left() -> None:
    observed = Observed(PlayedApi(version=100), WorkQueue())
    tell(observed, pod(resourceVersion="200"))
    observed.start()
    async with asyncio.timeout(10):
        await observed.left.wait()
    observed.stop()


SERVICE = {**service()["metadata"], "resourceVersion": "6"}


def a_job(version: int) -> dict[str, Any]:
    return {"kind": contract.JOB_KIND, "metadata": {"namespace": "ml", "name": "j", "uid": "u", "resourceVersion": str(version)}}


@pytest.mark.parametrize(
    ("shown", "answered", "owed"),
    [
        (5, [a_job(7), a_job(9)], {contract.JOB_KIND: 7}),
        (7, [a_job(5), a_job(7)], {}),
        (5, [pod(resourceVersion="3"), pod(resourceVersion="4"), service() | {"metadata": SERVICE}], {"Pod": 3, "Service": 6}),
        (5, [{"kind": "Lease", "metadata": {"resourceVersion": "9"}}, {}, {"kind": "Status"}], {}),
        (5, [{"kind": "Service", "metadata": {**SERVICE, "labels": {"app": "a stranger's"}}}], {}),
    ],
    ids=["the first that it has not shown", "shown before", "of each kind", "what is not watched", "what watches do not choose"],
)
async def test_a_watch_owes_what_an_answer_has_shown(shown: int, answered: list[dict[str, Any]], owed: dict[str, int]) -> None:
    observed = knowing()
    observed.job_seen(a_job(shown))
    tell(observed, *answered)
    assert {kind: found.version for kind, found in observed.owed().items()} == owed
    observed.job_seen(a_job(9))
    assert contract.JOB_KIND not in observed.owed()


async def test_a_comparison_puts_in_line_only_the_jobs_of_which_something_vanished_unseen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kompakt_operator.observed.COMPARE_SECONDS", 0.0)
    api = PlayedApi(pods=[pod("a", "a", resourceVersion="7"), pod("b", "b", resourceVersion="8")])
    observed, queue = await watching(api)
    for there in (2, 2, 1):
        api.lists["pods"] = api.lists["pods"][:there]
        asked = api.asked
        api.show("pods", "BOOKMARK", {"metadata": {}})
        api.streams["pods"].stop()
        await until(lambda asked=asked: api.asked > asked)  # type: ignore[misc]
        await asyncio.sleep(0.02)  # until it is told
        assert (await in_line(queue), len(observed.pods(JOB))) == ([KEY] if there == 1 else [], there)
    observed.stop()
