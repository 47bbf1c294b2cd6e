"""Jobs that are made to be large: refused with a sentence, or made into pods few at a time."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from kompakt_operator import render, watching
from kompakt_operator.api import AT_ONCE, OperatorApi, jobs_path
from kompakt_operator.config import read_config
from kompakt_operator.events import EventAnnouncer
from kompakt_operator.reconcile import Reconciler
from kompakt_operator.scrape import Scraper
from kompakt_operator.workqueue import Key, WorkQueue
from tests.support.operator.known import knowing

Object = dict[str, Any]
KEY: Key = ("ml", "j")


def job(replicas: int, size: int) -> Object:
    """A job with that many workers of a template of about so many bytes."""
    env = [{"name": "LONG", "value": "x" * size}]
    template = {"spec": {"containers": [{"name": "trainer", "image": "i", "env": env}]}}
    role = {"name": "worker", "replicas": replicas, "gpusPerReplica": 1, "template": template}
    meta = {"name": "j", "namespace": "ml", "uid": "u", "generation": 1, "resourceVersion": "5", "creationTimestamp": "t"}
    return {"metadata": meta, "spec": {"roles": [role]}}


class Slow(OperatorApi):
    """Takes everything, each after some turns of the loop; counts what was made, and how many bodies there were at a time."""

    def __init__(self, obj: Object) -> None:
        self.obj, self.made, self.rendered, self.most = obj, 0, 0, 0

    async def get(self, path: str, accept: str = "application/json", **query: str) -> Object:
        return self.obj if path == jobs_path(*KEY) else {}

    async def create(self, path: str, body: Mapping[str, Any], *, dry_run: bool = False) -> Object:
        for _ in range(3):
            await asyncio.sleep(0)
        if path.endswith("/pods") and not dry_run:
            self.made += 1
        return dict(body)

    async def apply(self, path: str, body: Mapping[str, Any]) -> Object:
        self.obj = {**self.obj, "status": dict(body["status"])}
        return self.obj


async def reconciled(api: Slow) -> dict[str, Object]:
    """The conditions that hold then, by type."""
    queue = WorkQueue()
    both = Reconciler(api, knowing(), queue, Scraper(queue, 0), EventAnnouncer(api, "pod-a"), "runtime")
    await both.reconcile(KEY)
    return {c["type"]: c for c in api.obj["status"]["conditions"] if c["status"] == "True"}


@pytest.mark.parametrize(
    ("replicas", "size", "words"),
    [
        pytest.param(1, 200_000, "spec.roles[0].template: has 200", id="one template"),
        pytest.param(1024, 100_000, "spec.roles: the templates times their replicas are 102", id="a template times its replicas"),
    ],
)
async def test_a_job_too_large_for_pods_fails_with_a_sentence(replicas: int, size: int, words: str) -> None:
    api = Slow(job(replicas, size))
    failed = (await reconciled(api))["Failed"]
    assert (failed["reason"], api.made) == ("InvalidTemplate", 0)
    assert words in failed["message"]
    assert "ConfigMap" in failed["message"]


async def test_memory_is_given_back_after_all_jobs_were_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Given(Exception):
        pass

    def give() -> None:
        raise Given

    class Listing(OperatorApi):
        def __init__(self) -> None:
            pass

        async def listed(self, path: str, **query: str) -> AsyncIterator[Object]:
            yield job(1, 10)

    monkeypatch.setattr(watching, "COMPARE_SECONDS", 0.0)
    monkeypatch.setattr("kompakt_client.memory.trim", give)
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.touch()
    config = read_config(["--runtime-image=i", f"--kubeconfig={kubeconfig}"], {})
    seen = list[Object]()
    with pytest.raises(Given):
        await watching.resync(Listing(), config, knowing(), seen.append)
    assert len(seen) == 1


async def test_of_a_large_gang_few_pods_are_in_memory_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    api, made = Slow(job(100, 10)), render.pod

    def counted(*args: Any, **more: Any) -> Object:
        api.rendered += 1
        api.most = max(api.most, api.rendered - api.made)
        return made(*args, **more)

    monkeypatch.setattr(render, "pod", counted)
    await reconciled(api)
    assert api.made == 100
    assert api.most <= AT_ONCE + 1, "one more body is the try before the first pod"
