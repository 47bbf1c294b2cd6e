"""What is deleted is the very object, in the very state, that was seen to belong to the job."""

from typing import Any

import pytest

from kompakt_client.errors import Conflict
from kompakt_core.job import to_do as do
from kompakt_core.job.spec import parse_job
from kompakt_operator.deletion import delete_owned
from kompakt_operator.perform import Performer
from tests.support.operator.known import JOB, pod
from tests.support.operator.server import FOLDERS, Object, Server, path_of

PATH = path_of(pod())
JOB_PATH = FOLDERS["TrainingJob"].format("ml") + "/j"


class Busy(Server):
    """Somebody writes the pod between each look at it and what follows."""

    async def get(self, path: str, accept: str = "", **query: str) -> Object:
        found = await super().get(path)
        self.change(path)
        return found


def serving(**meta: Any) -> Server:
    server = Server()
    server.put(pod(**meta))
    return server


async def test_the_object_is_deleted_as_it_was_seen_without_another_look() -> None:
    server = serving()
    version = server.objects[PATH]["metadata"]["resourceVersion"]
    await delete_owned(server, PATH, JOB, "p", version)
    assert (server.objects, server.deletions) == ({}, [(PATH, "p", version)])


async def test_one_that_was_changed_since_is_looked_at_again() -> None:
    server = serving()
    server.change(PATH, status={"phase": "Failed"})
    await delete_owned(server, PATH, JOB, "p", "1")
    assert (server.objects, server.deletions) == ({}, [(PATH, "p", "1"), (PATH, "p", "2")])


@pytest.mark.parametrize(
    "meta",
    [{"ownerReferences": []}, {"labels": {}}, {"deletionTimestamp": "t"}],
    ids=["the job was taken off", "its label was taken off", "it is going"],
)
@pytest.mark.parametrize("seen", [("p", "0"), ("p", ""), ("", "")], ids=["changed since", "no version known", "not seen before"])
async def test_one_that_is_not_the_jobs_to_delete_any_more_stays(meta: dict[str, Any], seen: tuple[str, str]) -> None:
    server = serving(**meta)
    await delete_owned(server, PATH, JOB, *seen)
    assert PATH in server.objects


@pytest.mark.parametrize("version", ["1", ""])
async def test_another_one_of_the_name_stays(version: str) -> None:
    server = serving(uid="another")
    await delete_owned(server, PATH, JOB, "p", version)
    assert PATH in server.objects


async def test_nothing_there_is_as_it_should_be() -> None:
    await delete_owned(Server(), PATH, JOB)
    await delete_owned(Server(), PATH, JOB, "p", "7")


async def test_one_that_is_changed_each_time_is_left_for_the_next_reconciliation() -> None:
    server = Busy()
    server.put(pod())
    with pytest.raises(Conflict, match="was changed whenever"):
        await delete_owned(server, PATH, JOB, "p", "0")
    assert PATH in server.objects
    assert len(server.deletions) == 3


async def test_a_job_that_was_changed_since_its_time_was_over_is_judged_anew() -> None:
    server = Server()
    template = {"spec": {"containers": [{"name": "trainer", "image": "i"}]}}
    role = {"name": "worker", "replicas": 1, "gpusPerReplica": 1, "template": template}
    meta = {"name": "j", "namespace": "ml", "uid": "u", "generation": 1}
    seen = server.put({"kind": "TrainingJob", "metadata": meta, "spec": {"roles": [role]}})
    server.change(JOB_PATH, spec={"roles": [role], "runPolicy": {"ttlSecondsAfterFinished": 3600}})
    with pytest.raises(Conflict):
        await Performer(server, "runtime", seen, parse_job(seen)).perform([do.DeleteJob()])
    assert JOB_PATH in server.objects
    now = server.objects[JOB_PATH]
    await Performer(server, "runtime", now, parse_job(now)).perform([do.DeleteJob(), do.DeleteJob()])
    assert JOB_PATH not in server.objects
