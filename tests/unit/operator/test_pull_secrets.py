"""Secrets for the runtime's image reach the workers that pull it, beside those that they would have without kompakt."""

from typing import Any

import pytest

from kompakt_client.errors import rejection
from kompakt_core import contract
from kompakt_operator.workqueue import Key
from tests.support.operator.server import Server

Object = dict[str, Any]
KEY: Key = ("ml", "j")


def job(pod: Object, **spec: Any) -> Object:
    template = {"spec": {"containers": [{"name": "trainer", "image": "i"}], **pod}}
    role = {"name": "worker", "replicas": 2, "gpusPerReplica": 1, "template": template}
    meta = {"name": "j", "namespace": "ml", "uid": "u", "generation": 1, "creationTimestamp": "2026-01-01T00:00:00Z"}
    spec = {"roles": [role], "injection": "Always", **spec}
    return {"apiVersion": contract.API_VERSION, "kind": contract.JOB_KIND, "metadata": meta, "spec": spec}


def account(*secrets: str, name: str = "default") -> Object:
    return {
        "kind": "ServiceAccount",
        "metadata": {"name": name, "namespace": "ml"},
        "imagePullSecrets": [{"name": secret} for secret in secrets],
    }


async def pulled(pod: Object, *others: Object, secrets: tuple[str, ...] = ("kompakt", "more"), **spec: Any) -> list[Any]:
    """imagePullSecrets of both workers of a job, which are the same; "absent" where a pod says nothing of them."""
    server = Server(pull_secrets=secrets)
    for other in others:
        server.put(other)
    server.put(job(pod, **spec))
    await server.settle(KEY)
    made = [obj["spec"].get("imagePullSecrets", "absent") for path, obj in server.objects.items() if "/pods/" in path]
    assert len(made) == 2
    assert made[0] == made[1]
    return [one["name"] for one in made[0]] if isinstance(made[0], list) else made[0]


async def test_workers_get_the_named_secrets_after_those_of_their_template_and_none_twice() -> None:
    own = {"imagePullSecrets": [{"name": "team"}, {"name": "more"}]}
    assert await pulled(own, account("unused")) == ["team", "more", "kompakt"]


@pytest.mark.parametrize(
    ("pod", "name"), [({}, "default"), ({"serviceAccountName": "trainer"}, "trainer"), ({"serviceAccount": "old"}, "old")]
)
async def test_secrets_of_the_service_account_stay_in_force(pod: Object, name: str) -> None:
    """Kubernetes gives them only to a pod that names none itself."""
    assert await pulled(pod, account("registry", "kompakt", name=name)) == ["registry", "kompakt", "more"]


async def test_a_service_account_that_is_missing_or_names_none_adds_none() -> None:
    assert await pulled({}) == await pulled({}, account()) == ["kompakt", "more"]


async def test_a_pod_without_the_runtime_and_an_operator_without_secrets_change_nothing() -> None:
    assert await pulled({}, account("registry"), injection="Default") == "absent"
    assert await pulled({}, account("registry"), secrets=()) == "absent"
    assert await pulled({"imagePullSecrets": [{"name": "team"}]}, secrets=()) == ["team"]


class Counting(Server):
    """Counts who asks for service accounts; none may be read."""

    asked = 0

    async def get(self, path: str, accept: str = "", **query: str) -> Object:
        if "/serviceaccounts/" in path:
            self.asked += 1
            raise rejection(403, "Forbidden", "no")
        return await super().get(path, accept, **query)


async def test_an_account_that_may_not_be_read_makes_no_pods_that_could_lack_its_secrets() -> None:
    server = Counting(pull_secrets=("kompakt",))
    server.put(job({}))
    with pytest.raises(Exception, match="no"):
        await server.settle(KEY)
    assert not [path for path in server.objects if "/pods/" in path]
    assert server.asked == 1, "once, not once for each worker"
