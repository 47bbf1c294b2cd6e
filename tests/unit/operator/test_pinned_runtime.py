"""Workers that an upgraded operator makes for a job that has begun get the runtime which the job has begun with."""

from typing import Any

from kompakt_core import contract
from kompakt_operator.workqueue import Key
from tests.support.operator.server import Server

Object = dict[str, Any]
KEY: Key = ("ml", "j")
PODS = "/api/v1/namespaces/ml/pods/"


def job(name: str = "j") -> Object:
    template = {"spec": {"containers": [{"name": "trainer", "image": "i"}]}}
    role = {"name": "worker", "replicas": 2, "gpusPerReplica": 1, "template": template}
    meta = {"name": name, "namespace": "ml", "uid": f"u-{name}", "generation": 1, "creationTimestamp": "2026-01-01T00:00:00Z"}
    spec = {"roles": [role], "activationCompression": {}}
    return {"apiVersion": contract.API_VERSION, "kind": contract.JOB_KIND, "metadata": meta, "spec": spec}


def runtimes(server: Server) -> dict[str, str]:
    """By name of each pod the image of its first init container."""
    pods = {path.removeprefix(PODS): obj for path, obj in server.objects.items() if path.startswith(PODS)}
    return {name: pod["spec"]["initContainers"][0]["image"] for name, pod in pods.items()}


async def begun() -> Server:
    """A job whose pods an operator has made that offers `old`; one that offers `new` has taken over."""
    server = Server()
    server.operate("old")
    server.put(job())
    await server.settle(KEY)
    server.operate("new")
    return server


async def test_a_worker_that_is_made_again_and_the_next_attempt_get_the_old_runtime() -> None:
    server = await begun()
    server.remove(f"{PODS}j-worker-1-a1")
    await server.settle(KEY)
    assert runtimes(server) == {"j-worker-0-a1": "old", "j-worker-1-a1": "old"}
    ended = [{"name": "trainer", "state": {"terminated": {"exitCode": 1, "finishedAt": "2026-01-01T00:00:00Z"}}}]
    server.change(f"{PODS}j-worker-0-a1", spec={"nodeName": "n"}, status={"phase": "Failed", "containerStatuses": ended})
    await server.settle(KEY)
    assert runtimes(server) == {"j-worker-0-a2": "old", "j-worker-1-a2": "old"}


async def test_a_new_job_gets_the_new_runtime() -> None:
    server = await begun()
    server.put(job("later"))
    await server.settle(KEY, ("ml", "later"))
    assert set(runtimes(server).values()) == {"old", "new"}
    assert runtimes(server)["later-worker-0-a1"] == "new"
