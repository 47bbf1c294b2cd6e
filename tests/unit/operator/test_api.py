"""Requests of the operator: who hears of answers, and what happens to requests when it ends."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from kompakt_client.errors import Unreachable
from kompakt_core.errors import InvalidInput
from kompakt_operator.api import PAGE_BYTES, OperatorApi
from tests.support.client.api_server import Scripted, serving

POD = {"kind": "Pod", "metadata": {"name": "p"}}
PATH = "/api/v1/namespaces/ml/pods"


@pytest.fixture
def server() -> Any:
    with serving() as script:
        yield script


@pytest.fixture
async def api(server: Scripted, tmp_path: Path) -> Any:
    cluster, context = {"name": "c", "cluster": {"server": server.address}}, {"name": "c", "context": {"cluster": "c"}}
    document = {"current-context": "c", "contexts": [context], "clusters": [cluster]}
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(document))
    api = OperatorApi(str(path), at_once=1)
    yield api
    await api.close()


async def test_each_object_that_stands_there_is_heard_of_and_one_that_was_only_tried_is_not(
    server: Scripted, api: OperatorApi
) -> None:
    heard: list[Any] = []
    api.answered = lambda found, raw: heard.append(found["metadata"]["name"])
    server.answers = [(200, {"kind": "Pod", "metadata": {"name": name}}) for name in "abcde"]
    await api.get(f"{PATH}/p")
    await api.create(PATH, POD)
    await api.create(PATH, POD, dry_run=True)
    await api.apply(f"{PATH}/p", POD)
    await api.delete(f"{PATH}/p", "uid", "7")
    assert heard == ["a", "b", "d"]
    assert json.loads(server.asked[-1][3])["preconditions"] == {"uid": "uid", "resourceVersion": "7"}


async def test_a_list_is_read_page_by_page(server: Scripted, api: OperatorApi) -> None:
    pages = [{"items": [{"n": 1}, {"n": 2}], "metadata": {"continue": "next"}}, {"items": [{"n": 3}], "metadata": {}}]
    server.answers = [(200, page) for page in pages]
    assert [obj["n"] async for obj in api.listed(PATH, labelSelector="x")] == [1, 2, 3]
    assert [asked[1] for asked in server.asked] == [
        f"{PATH}?limit=100&labelSelector=x",
        f"{PATH}?limit=100&labelSelector=x&continue=next",
    ]


async def test_a_page_that_is_too_long_is_asked_for_in_pieces(server: Scripted, api: OperatorApi) -> None:
    long = {"items": [{"text": "x" * PAGE_BYTES}], "metadata": {}}
    server.answers = [(200, long), (200, {"items": [{"n": 1}], "metadata": {"continue": "next"}}), (200, {"items": [{"n": 2}]})]
    assert [obj["n"] async for obj in api.listed(PATH)] == [1, 2]
    assert [asked[1] for asked in server.asked] == [f"{PATH}?limit=100", f"{PATH}?limit=25", f"{PATH}?limit=100&continue=next"]


async def test_an_answer_that_is_no_json_is_no_answer(server: Scripted, api: OperatorApi) -> None:
    server.answers = [(200, b"<html>")]
    with pytest.raises(Unreachable, match="nonsense"):
        await api.get(f"{PATH}/p")


async def test_once_closed_nothing_is_sent_and_nothing_repeated(server: Scripted, api: OperatorApi) -> None:
    """Of three that were asked for together one waits before it is repeated, and two have not been sent."""
    server.answers = [(429, {}, {"Retry-After": "4"})]
    waiting = [asyncio.ensure_future(api.create(PATH, POD)) for _ in range(3)]
    while not server.asked:
        await asyncio.sleep(0.01)
    async with asyncio.timeout(3):
        await api.close()
    ends = await asyncio.gather(*waiting, return_exceptions=True)
    assert all(isinstance(end, Unreachable | asyncio.CancelledError) for end in ends)
    assert len(server.asked) == 1


async def test_a_request_that_waits_too_long_for_its_turn_fails_without_being_sent(server: Scripted, api: OperatorApi) -> None:
    """Else all would stand in line behind one namespace whose webhook is slow."""
    api._turn = 0.05
    server.answers = [None]
    slow = asyncio.ensure_future(api.get(f"{PATH}/slow"))
    while not server.asked:
        await asyncio.sleep(0.01)
    waiting = asyncio.ensure_future(api.create(PATH, POD))
    await asyncio.sleep(0.1)
    server.done.set()
    assert await slow == {}
    with pytest.raises(Unreachable, match=r"POST .* in line behind slower requests"):
        await waiting
    assert len(server.asked) == 1


async def test_closing_waits_for_what_has_been_sent(server: Scripted, api: OperatorApi) -> None:
    server.answers = [None]  # a stream that ends after five seconds, or when the script is done
    sent = asyncio.ensure_future(api.get(f"{PATH}/p"))
    while not server.asked:
        await asyncio.sleep(0.01)
    closing = asyncio.ensure_future(api.close())
    await asyncio.sleep(0.1)
    assert not closing.done()
    server.done.set()
    await asyncio.wait_for(closing, 3)
    assert await sent == {}


def test_an_api_server_that_cannot_be_asked_is_named_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="--kubeconfig"):
        OperatorApi(str(tmp_path / "none"))
