"""What belongs to a job is told by its controller; names and labels of a job on objects of others mean nothing."""

import asyncio
import copy
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from kompakt_core import contract
from kompakt_core.contract import job_owner
from kompakt_core.contract.job_owner import JobOwner
from kompakt_operator.garbage_collector import COLLECTOR_SECONDS
from kompakt_operator.workqueue import Key
from tests.support.operator.server import FOLDERS, Object, Server, path_of

KEY: Key = ("ml", "j")
FALSE: Key = ("ml", "false")
JOB = "/".join((FOLDERS[contract.JOB_KIND].format("ml"), "j"))
OWNER = job_owner.encode(JobOwner("ml", "j", "u"))
LABELS = {contract.LABEL_JOB_UID: "u", contract.LABEL_JOB_NAME: "j", contract.LABEL_ATTEMPT: "1"}
WORKER = {contract.LABEL_WORKER_INDEX: "0", contract.LABEL_ROLE: "worker"}


def job(**spec: Any) -> Object:
    template = {"spec": {"containers": [{"name": "trainer", "image": "i"}]}}
    role = {"name": "worker", "replicas": 2, "gpusPerReplica": 1, "template": template}
    meta = {"name": "j", "namespace": "ml", "uid": "u", "generation": 1, "creationTimestamp": "2026-01-01T00:00:00Z"}
    spec = {"roles": [role], "runPolicy": {"evictions": "Refuse"}, **spec}
    return {"apiVersion": contract.API_VERSION, "kind": contract.JOB_KIND, "metadata": meta, "spec": spec}


def an(kind: str, name: str, namespace: str = "ml", **meta: Any) -> Object:
    """An object of somebody else."""
    body: Object = {"kind": kind, "metadata": {"name": name, "namespace": namespace, **copy.deepcopy(meta)}}
    return body | ({"spec": {"nodeName": "n1"}, "status": {"phase": "Failed"}} if kind == "Pod" else {})


async def running(*others: Object) -> Server:
    """A job whose two workers run; the others were there before."""
    server = Server()
    for other in others:
        server.put(other)
    server.put(job())
    return await runs(server)


async def runs(server: Server) -> Server:
    """The operator comes to rest, and all workers that it has made run."""
    await server.settle(KEY)
    for path in own(server):
        if "/pods/" in path and not server.objects[path].get("status"):
            server.change(path, spec={"nodeName": "n1"}, status={"phase": "Running"})
    await server.settle(KEY)
    return server


def own(server: Server) -> list[str]:
    """Paths of what the operator has made for the job."""
    return sorted(path for path, obj in server.objects.items() if obj["metadata"].get("ownerReferences") == [OWNER])


async def much_later(server: Server, *keys: Key) -> None:
    """Kubernetes' collector had its time."""
    loop = asyncio.get_running_loop()
    now = loop.time()
    try:
        for seconds in (0.0, COLLECTOR_SECONDS + 1):
            loop.time = lambda later=seconds: now + later  # type: ignore[method-assign,misc]
            await server.settle(*keys)
    finally:
        del loop.time  # type: ignore[method-assign]


@pytest.mark.parametrize("owners", [[], [{**OWNER, "name": "false"}]], ids=["by labels", "by an owner of a false name"])
async def test_a_service_with_the_uid_of_a_running_job_and_a_false_name_of_it_ends_nothing(owners: list[Object]) -> None:
    server = await running()
    before = own(server)
    labels = {**LABELS, contract.LABEL_JOB_NAME: "false"}
    server.put(an("Service", "trap", labels=labels, ownerReferences=owners))
    await much_later(server, FALSE)  # nothing of the job itself changes
    await server.settle(KEY)
    assert own(server) == before
    assert (f"{FOLDERS['Service'].format('ml')}/trap" in server.objects) is (not owners)
    assert server.objects[JOB]["status"]["phase"] == "Running"


@pytest.mark.parametrize("owners", [[], [OWNER]], ids=["by labels", "given to the job"])
async def test_a_service_named_like_the_budget_of_somebody_does_not_cost_it(owners: list[Object]) -> None:
    server = await running(an("PodDisruptionBudget", "web"), an("Service", "web", labels=LABELS, ownerReferences=owners))
    server.change(JOB, spec={**server.objects[JOB]["spec"], "suspend": True})
    await server.settle(KEY)
    assert path_of(an("PodDisruptionBudget", "web")) in server.objects
    assert own(server) == []


WRONG_OWNERS = [
    {**OWNER, "controller": False},
    {key: value for key, value in OWNER.items() if key != "controller"},
    {**OWNER, "uid": "before"},
    {**OWNER, "kind": "Job"},
    {**OWNER, "apiVersion": "batch/v1"},
]
SPOILT = {
    contract.LABEL_JOB_UID: "before",
    contract.LABEL_JOB_NAME: "other",
    contract.LABEL_ATTEMPT: "2",
    **dict.fromkeys(WORKER, "1"),
}
LABELLED = st.fixed_dictionaries(
    {}, optional={key: st.sampled_from([right, SPOILT[key]]) for key, right in (LABELS | WORKER).items()}
)
FOREIGN = st.builds(
    an,
    st.sampled_from(sorted(FOLDERS.keys() - {contract.JOB_KIND, "Event"})),
    st.sampled_from(["j", "j-a1", "j-a2", "j-worker-0-a1", "j-worker-1-a2", "web"]),
    st.sampled_from(["ml", "elsewhere"]),
    labels=LABELLED,
    ownerReferences=st.lists(st.sampled_from(WRONG_OWNERS), max_size=2),
).filter(lambda obj: job_owner.readable(obj["metadata"]) is None)  # else it is left of a job before
SHORT = {"evictions": "Refuse", "ttlSecondsAfterFinished": 0}
STEPS: dict[str, Callable[[Server], None]] = {
    "a worker fails": lambda server: end(server, 1, "j-worker-0-"),
    "a worker succeeds": lambda server: end(server, 0, "j-worker-0-"),
    "suspend": lambda server: server.change(JOB, spec={**server.objects[JOB]["spec"], "suspend": True}),
    "resume": lambda server: server.change(JOB, spec={**server.objects[JOB]["spec"], "suspend": False}),
    "all workers succeed": lambda server: end(server, 0, "j-worker-"),
    "it lives no longer than it runs": lambda server: server.change(JOB, spec=job(runPolicy=SHORT)["spec"]),
    "it is deleted": lambda server: server.remove(JOB),
}


def end(server: Server, code: int, names: str) -> None:
    """Containers of the job's workers of which the names begin like this."""
    ended = [{"name": "trainer", "state": {"terminated": {"exitCode": code, "finishedAt": "2026-01-01T00:00:00Z"}}}]
    for path in [path for path in own(server) if f"/pods/{names}" in path]:
        server.change(path, status={"phase": "Failed" if code else "Succeeded", "containerStatuses": ended})


async def lived(others: list[Object], steps: list[str]) -> tuple[Server, list[Any]]:
    """How a job fares beside the others, which come when it runs: until one of them has a name that it needs next."""
    server = await running()
    for other in others:
        if path_of(other) not in server.objects:
            server.put(other)
    story = [state(server)]
    for step in steps:
        if JOB in server.objects:
            STEPS[step](server)
            await runs(server)
            await much_later(server, KEY)
            if name_taken(server):
                break
            story.append(state(server))
    return server, story


def state(server: Server) -> Any:
    """What the job's owner sees."""
    status = server.objects.get(JOB, {}).get("status", {})
    return *(status.get(part) for part in ("phase", "attempt", "restarts")), own(server)


def name_taken(server: Server) -> bool:
    conditions = server.objects.get(JOB, {}).get("status", {}).get("conditions", ())
    return any(one["reason"] == "NameTaken" and one["status"] == "True" for one in conditions)


@settings(deadline=None, max_examples=60, phases=set(Phase) - {Phase.shrink, Phase.explain})
@given(st.lists(FOREIGN, min_size=1, max_size=6, unique_by=path_of), st.lists(st.sampled_from(sorted(STEPS)), max_size=3))
async def test_nothing_foreign_is_touched_and_no_job_is_harmed(others: list[Object], steps: list[str]) -> None:
    """Where a stranger has the very name that the job needs next, the job says so; else it fares as if it were alone."""
    of_the_job = own(await running())
    (beside, story), (_, alone) = await lived(copy.deepcopy(others), steps), await lived([], steps)
    found = {path: obj for path, obj in beside.objects.items() if path not in own(beside) and path != JOB}
    there = {path_of(other): other for other in others if path_of(other) not in of_the_job}
    assert {path: bare(obj) for path, obj in found.items()} == {path: bare(obj) for path, obj in there.items()}
    assert all(uid and version for _, uid, version in beside.deletions)
    assert story == alone[: len(story)]


def bare(obj: Object) -> Object:
    """Without what the server adds."""
    return {**obj, "metadata": {key: value for key, value in obj["metadata"].items() if key not in ("uid", "resourceVersion")}}
