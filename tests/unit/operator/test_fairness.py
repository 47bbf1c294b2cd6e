"""One namespace with many jobs does not delay another's; a gang that cannot be whole is not begun."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kompakt_client.errors import rejection
from kompakt_core.contract import RESOURCE
from kompakt_core.job import to_do as do
from kompakt_core.job.model import TrainingJob
from kompakt_core.job.spec import parse_job
from kompakt_operator.api import OperatorApi
from kompakt_operator.perform import FIRST_BATCH, NotMade, Performer
from kompakt_operator.quota import exceeded, needed
from kompakt_operator.turns import FairQueue, Turns
from kompakt_operator.workqueue import AT_MOST, WORKERS, WorkQueue

Object = dict[str, Any]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers()), max_size=30))
def test_no_namespace_waits_for_more_than_one_item_of_each_other_and_none_loses_its_order(puts: list[tuple[str, int]]) -> None:
    queue: FairQueue[tuple[str, int]] = FairQueue()
    for namespace, item in puts:
        queue.put(namespace, (namespace, item))
    taken = [queue.take() for _ in puts]
    assert (queue.take(), len(queue)) == (None, 0)
    for namespace in "abc":
        places = [place for place, one in enumerate(taken) if one and one[0] == namespace]
        assert [taken[place] for place in places] == [one for one in puts if one[0] == namespace]
        assert all(later - sooner <= 3 for sooner, later in pairwise(places))


async def test_the_only_job_of_a_namespace_is_next_behind_hundreds_of_another() -> None:
    queue = WorkQueue()
    for number in range(200):
        queue.add(("crowd", str(number)))
    first = await queue.take()
    queue.add(("quiet", "j"))
    assert [first, await queue.take(), await queue.take()] == [("crowd", "0"), ("crowd", "1"), ("quiet", "j")]


async def test_some_workers_are_left_for_other_namespaces() -> None:
    queue = WorkQueue()
    for number in range(WORKERS):
        queue.add(("crowd", str(number)))
    taken = [await queue.take() for _ in range(AT_MOST)]
    waiting = asyncio.ensure_future(queue.take())
    await asyncio.sleep(0)
    assert not waiting.done()
    queue.add(("quiet", "j"))
    assert await waiting == ("quiet", "j")
    waiting = asyncio.ensure_future(queue.take())
    await asyncio.sleep(0)
    queue.done(taken[0])
    assert await waiting == ("crowd", str(AT_MOST))


async def test_requests_of_namespaces_take_turns() -> None:
    turns, order = Turns(1, 1), list[str]()

    async def ask(namespace: str) -> None:
        async with turns.of(namespace, 60.0):
            order.append(namespace)
            await asyncio.sleep(0)

    await asyncio.gather(*(ask(name) for name in "aaaab"))
    assert order == list("aabaa")


async def test_some_turns_are_left_for_other_namespaces() -> None:
    turns = Turns(3, 2)
    async with turns.of("a", 60.0), turns.of("a", 60.0):
        with pytest.raises(TimeoutError):
            await turns.of("a", 0.01).__aenter__()
        async with asyncio.timeout(5), turns.of("b", 60.0):
            pass
    async with asyncio.timeout(5), turns.of("a", 60.0), turns.of("a", 60.0):
        pass


async def test_a_turn_that_nobody_waits_for_any_more_goes_to_the_next() -> None:
    turns = Turns(1, 1)
    async with turns.of("a", 60.0):
        given_up = asyncio.ensure_future(turns.of("a", 60.0).__aenter__())
        late = asyncio.ensure_future(turns.of("b", 0.0).__aenter__())
        await asyncio.sleep(0.01)
        given_up.cancel()
        with pytest.raises(TimeoutError):
            await late
    async with asyncio.timeout(5), turns.of("c", 60.0):
        pass


QUOTAS: dict[str, tuple[Object, Object, str]] = {
    "room": ({"pods": "10"}, {"pods": "2"}, ""),
    "no room for all": ({"pods": "9"}, {"pods": "2"}, "requested: pods=8, used: pods=2, limited: pods=9"),
    "counted objects": ({"count/pods": "7"}, {}, "requested: count/pods=8, used: count/pods=0, limited: count/pods=7"),
    "GPUs": ({f"requests.{RESOURCE}": "31"}, {}, f"requested: requests.{RESOURCE}=32"),
    "thousands": ({"pods": "1k"}, {"pods": "1"}, ""),
    "other things": ({"cpu": "1", "services": "0"}, {}, ""),
    "no figures yet": ({}, {}, ""),
    "no quantity": ({"pods": "many"}, {"pods": "x"}, ""),
}


@pytest.mark.parametrize(("hard", "used", "words"), QUOTAS.values(), ids=QUOTAS)
def test_a_gang_is_compared_with_quotas_as_a_whole(hard: Object, used: Object, words: str) -> None:
    found = exceeded([{"metadata": {"name": "q"}, "status": {"hard": hard, "used": used}}], needed([4] * 8))
    assert (words in found, bool(found)) == (True, bool(words))


@pytest.mark.parametrize("scoped", [{"scopes": ["BestEffort"]}, {"scopeSelector": {"matchExpressions": []}}], ids=str)
def test_a_quota_for_some_pods_is_left_to_the_api_server(scoped: Object) -> None:
    quota = {"metadata": {"name": "q"}, "spec": scoped, "status": {"hard": {"pods": "1"}}}
    assert exceeded([quota], needed([1, 1])) == ""


def gang(replicas: int) -> TrainingJob:
    template = {"spec": {"containers": [{"name": "trainer", "image": "i"}]}}
    role = {"name": "worker", "replicas": replicas, "gpusPerReplica": 4, "template": template}
    return parse_job({"metadata": {"name": "j", "namespace": "ml", "uid": "u"}, "spec": {"roles": [role]}})


class Namespace(OperatorApi):
    """Has one quota of pods, and takes so many pods before it refuses one."""

    def __init__(self, pods: int, *, readable: bool = True) -> None:
        self.pods, self.readable, self.asked = pods, readable, 0

    async def get(self, path: str, accept: str = "application/json", **query: str) -> Object:
        assert path == "/api/v1/namespaces/ml/resourcequotas"
        if not self.readable:
            raise rejection(403, "Forbidden", "resourcequotas is forbidden")
        return {"items": [{"metadata": {"name": "q"}, "status": {"hard": {"pods": str(self.pods)}, "used": {"pods": "0"}}}]}

    async def create(self, path: str, body: Mapping[str, Any], *, dry_run: bool = False) -> Object:
        self.asked += 1
        if self.asked > self.pods:
            raise rejection(403, "Forbidden", "exceeded quota: q")
        return dict(body)


async def made(api: Namespace, replicas: int) -> int:
    """How many pods were tried."""
    performer = Performer(api, "runtime", {}, gang(replicas))
    with suppress(NotMade):
        await performer.perform([do.CreatePod("worker", index, 1) for index in range(replicas)])
    return api.asked


@pytest.mark.parametrize(("pods", "replicas", "tried"), [(64, 64, 64), (63, 64, 0), (0, 1, 1)])
async def test_a_gang_for_which_a_quota_has_no_room_is_not_begun(pods: int, replicas: int, tried: int) -> None:
    assert await made(Namespace(pods), replicas) == tried


async def test_where_quotas_may_not_be_read_few_pods_are_tried_in_vain() -> None:
    assert await made(Namespace(FIRST_BATCH, readable=False), 64) == FIRST_BATCH * 3
