"""The stream that the live page reads: what it tells, to whom, how often, and how it ends."""

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from fastapi import FastAPI

from kompakt_client.errors import ApiError, NotFound
from kompakt_client.reviews import explaining
from kompakt_core.contract import JOB_PLURAL, TOKEN_HEADER, TOPOLOGY_PLURAL
from kompakt_core.ids import NodeName
from kompakt_extender.explain.bounded_executor import BoundedExecutor
from kompakt_extender.health import health_app
from kompakt_extender.live import event_stream, feed, listener, overview
from kompakt_extender.live.models import LiveGang
from kompakt_extender.live.routes import POLICY, page_files
from kompakt_extender.views import JobKind
from tests.support.extender.explain_client import ExplainClient, bound, explain_client
from tests.support.extender.guard import guarded_by
from tests.support.extender.streaming import PageStream

TENANT = {TOKEN_HEADER: "token-of-tenant"}
NODES, OTHER = explaining(TOPOLOGY_PLURAL), explaining(JOB_PLURAL, "other")


class OpenPages:
    """A health app over a small cluster, and the pages that are open on it."""

    def __init__(self) -> None:
        self.client: ExplainClient = explain_client()
        self.leader = self.client.leader
        self.client.api_server.users["token-of-tenant"] = "tenant"
        self.app: FastAPI = health_app(self.client, self.leader.metrics, guarded_by(self.client.api_server))
        self._open: list[PageStream] = []

    def open(self, **more: Any) -> PageStream:
        self._open.append(PageStream(self.app, **more))
        return self._open[-1]

    async def close(self) -> None:
        for one in self._open:
            one.reads = True
            await one.close()


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounds as quick as the loop."""
    monkeypatch.setattr(feed, "ROUND_SECONDS", 0.0)
    monkeypatch.setattr(feed, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(feed, "SHARE", 0)


@pytest.fixture
def checked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tokens and rights are asked about again and again."""
    monkeypatch.setattr(event_stream, "CHECK_SECONDS", 0.0)
    monkeypatch.setattr("random.random", lambda: 0.0)
    monkeypatch.setattr("kompakt_client.reviews.KEPT_SECONDS", 0.0)


@pytest.fixture
async def pages() -> AsyncIterator[OpenPages]:
    made = OpenPages()
    yield made
    await made.close()


async def test_a_page_is_told_everything_first(pages: OpenPages) -> None:
    await bound(pages.leader, "a", 2, "n0")
    await pages.leader.place("big", 4, 8)
    kind, found = await pages.open().event()
    assert kind == "all"
    assert [one["name"] for one in found["nodes"]] != []
    n0 = next(one for one in found["nodes"] if one["name"] == "n0")
    assert [(one["namespace"], one["name"], int(one["mask"], 16).bit_count()) for one in n0["holders"]] == [("default", "a", 2)]
    assert int(n0["holders"][0]["mask"], 16) & int(n0["freeMask"], 16) == 0
    assert n0["bestLeft"] == (await pages.client.get("/nodes/n0"))["bestLeft"]
    gang = found["gangs"][0]
    assert (gang["name"], gang["waits"], gang["gpus"], gang["workers"]) == ("big", True, 32, 4)
    assert gang["message"] == pages.leader.scheduling("big")["message"]
    assert found["counts"] == {
        "nodes": 3, "gpus": 24, "free": 22, "held": 2, "unhealthy": 0, "waiting": 1, "running": 0,
    }  # fmt: skip


async def test_nodes_of_one_kind_share_their_links(pages: OpenPages) -> None:
    _, found = await pages.open().event()
    assert len(found["machines"]) == 2
    n0, n1 = (next(one for one in found["nodes"] if one["name"] == name) for name in ("n0", "n1"))
    assert n0["machine"] == n1["machine"]
    assert len(found["machines"][str(n0["machine"])]["links"]) == 28


async def test_a_change_names_only_what_changed(pages: OpenPages) -> None:
    page = pages.open()
    await page.until("all")
    await bound(pages.leader, "a", 2, "n1")
    found = await page.until("change")
    assert [one["name"] for one in found["nodes"]] == ["n1"]
    assert found["gangs"] == []
    assert found["counts"]["held"] == 2


async def test_what_is_not_seen_on_the_page_is_not_told(pages: OpenPages) -> None:
    page = pages.open()
    await page.until("all")
    pages.leader.ledger._touch(NodeName("n0"))  # it shows the same
    pages.leader.world.add_node("n9")
    pages.leader.see()
    assert [one["name"] for one in (await page.until("change"))["nodes"]] == ["n9"]


async def test_what_goes_is_told_once(pages: OpenPages) -> None:
    page = pages.open()
    await page.until("all")
    pages.leader.world.remove_node("n1")
    pages.leader.see()
    assert (await page.until("change"))["goneNodes"] == ["n1"]


async def test_a_gang_is_followed_from_waiting_to_its_end(pages: OpenPages) -> None:
    page = pages.open()
    await page.until("all")
    await pages.leader.place("j", 1, 4)
    seen = []
    while not seen or seen[-1]["state"] != "Released":
        seen += (await page.until("change"))["gangs"]
    assert (seen[-1]["waits"], seen[-1]["level"], len(seen[-1]["nodes"])) == (False, "Machine", 1)
    del pages.leader.world.jobs["j"]
    pages.leader.handlers.training_jobs().remove("uid-j")
    gone: list[str] = []
    while not gone:
        gone = (await page.until("change"))["goneGangs"]
    assert gone == ["TrainingJob/default/j"]


async def test_pages_that_see_the_same_cost_one_text(pages: OpenPages, monkeypatch: pytest.MonkeyPatch) -> None:
    open_pages = [pages.open() for _ in range(5)]
    for page in open_pages:
        await page.until("all")
    worked = 0
    run = BoundedExecutor.run

    async def counting(self: Any, work: Any) -> Any:
        nonlocal worked
        worked += 1
        return await run(self, work)

    monkeypatch.setattr(BoundedExecutor, "run", counting)
    pages.leader.world.add_node("n9")
    pages.leader.see()
    told = [await page.until("change") for page in open_pages]
    assert all(one == told[0] for one in told)
    assert worked == 1


async def test_nothing_is_followed_while_no_page_is_open(pages: OpenPages) -> None:
    others = len(pages.leader.ledger._watchers)
    page = pages.open()
    await page.until("all")
    assert len(pages.leader.ledger._watchers) == others + 1
    assert len(pages.leader.jobs._subscribed) == 1
    await page.close()
    while len(pages.leader.ledger._watchers) > others:
        await asyncio.sleep(0)
    assert pages.leader.jobs._subscribed == []


async def test_of_other_namespaces_numbers_are_told_and_no_names(pages: OpenPages) -> None:
    await bound(pages.leader, "secret", 2, "n0")
    pages.leader.world.add_gang("big", 4, 8)
    pages.leader.world.add_gang("mine", 4, 8, namespace="other")
    await pages.leader.settle()
    pages.client.api_server.rights["tenant"] = {NODES, OTHER}
    found = await pages.open(headers=TENANT).until("all")
    assert "'secret'" not in str(found)
    assert "'big" not in str(found)
    assert [one["name"] for one in found["gangs"]] == ["mine"]
    assert found["counts"]["waiting"] == 2
    await bound(pages.leader, "also-secret", 2, "n1")
    assert "'also-secret'" not in str(await pages._open[-1].until("change"))


@pytest.mark.parametrize(("headers", "status"), [({}, 401), ({TOKEN_HEADER: "forged"}, 401), (TENANT, 403)])
async def test_who_may_not_ask_about_nodes_is_refused(pages: OpenPages, headers: dict[str, str], status: int) -> None:
    page = PageStream(pages.app, headers=headers)
    await asyncio.wait_for(page.task, 10)
    assert page.status == status
    pages.client.http.headers.pop(TOKEN_HEADER)
    assert (await pages.client.http.get("/v1alpha1/overview", headers=headers)).status_code == status


@pytest.mark.usefixtures("checked_at_once")
async def test_a_stream_ends_with_its_token(pages: OpenPages) -> None:
    page = pages.open()
    await page.until("all")
    del pages.client.api_server.users["token-of-admin"]
    assert (await page.until("end"))["status"] == 401


@pytest.mark.usefixtures("checked_at_once")
async def test_a_stream_ends_with_the_right(pages: OpenPages) -> None:
    page = pages.open()
    await page.until("all")
    pages.client.api_server.rights["admin"].clear()
    assert (await page.until("end"))["status"] == 403


@pytest.mark.usefixtures("checked_at_once")
async def test_a_stream_whose_right_cannot_be_checked_ends(pages: OpenPages, monkeypatch: pytest.MonkeyPatch) -> None:
    page = pages.open()
    await page.until("all")

    def broken(*_: Any) -> Any:
        raise OSError("no route")

    monkeypatch.setattr(feed.LiveFeed, "namespaces", broken)
    assert "could not be checked: no route" in (await page.until("end"))["detail"]


async def test_what_goes_elsewhere_is_not_told(pages: OpenPages) -> None:
    for namespace in ("default", "other"):
        pages.leader.world.add_gang(f"of-{namespace}", 4, 8, namespace=namespace)
    await pages.leader.settle()
    pages.client.api_server.rights["tenant"] = {NODES, OTHER}
    page = pages.open(headers=TENANT)
    await page.until("all")
    for name in ("of-default", "of-other"):
        del pages.leader.world.jobs[name]
        pages.leader.handlers.training_jobs().remove(f"uid-{name}")
    gone: list[str] = []
    while not gone:
        found = await page.until("change")
        assert "of-default" not in str(found)
        gone = found["goneGangs"]
    assert gone == ["TrainingJob/other/of-other"]


LIFE = "/v1alpha1/jobs/default/j/life"


async def test_gangs_of_others_have_no_life_of_a_job(pages: OpenPages) -> None:
    await pages.leader.place("j", 1, 4)
    assert (await pages.client.http.get(LIFE)).status_code == 200
    views = pages.leader.jobs.views
    views["uid-j"] = msgspec.structs.replace(views["uid-j"], kind=JobKind.GANG)
    assert (await pages.client.http.get(LIFE)).status_code == 404


@pytest.mark.parametrize(("error", "status"), [(NotFound("it is gone", 404), 404), (ApiError("no answer"), 503)])
async def test_a_job_that_cannot_be_read_is_answered_for(pages: OpenPages, error: ApiError, status: int) -> None:
    await pages.leader.place("j", 1, 4)

    class Unread(dict[str, Any]):
        def get(self, *_: Any) -> Any:
            raise error

    pages.leader.world.jobs["j"] = Unread()
    answer = await pages.client.http.get(LIFE)
    assert (answer.status_code, answer.json()) == (status, {"detail": error.message})


def test_what_waits_for_a_page_is_dropped_when_it_may_see_less() -> None:
    page = listener.PageListener(None)
    page.greeted = True
    page.push(b"for other eyes")
    page.see(frozenset({"mine"}))
    assert not page.greeted
    assert not page._waiting


def test_of_gangs_with_places_those_that_a_reader_may_see_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overview, "PLACED_AT_MOST", 2)
    whole = overview.Overview()
    for number in range(6):
        gang = whole.gangs[str(number)] = LiveGang.model_construct(key=str(number), namespace="ab"[number % 2], waits=False)
        assert not gang.waits
    assert [whole.everything(one)._more for one in (None, frozenset("a"), frozenset())] == [4, 1, 0]
    assert [one.namespace for one in whole.everything(frozenset("a"))._gangs] == ["a", "a"]


@pytest.mark.usefixtures("checked_at_once")
async def test_more_rights_show_more(pages: OpenPages) -> None:
    await bound(pages.leader, "secret", 2, "n0")
    pages.client.api_server.rights["tenant"] = {NODES}
    page = pages.open(headers=TENANT)
    assert "'secret'" not in str(await page.until("all"))
    pages.client.api_server.rights["tenant"].add(explaining(JOB_PLURAL))
    assert "'secret'" in str(await page.until("all"))


async def test_a_page_that_does_not_read_is_dropped_and_told_so(pages: OpenPages, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "MOST_WAITING", 2)
    slow, quick = pages.open(), pages.open()
    await slow.until("all")
    await quick.until("all")
    slow.reads = False
    for number in range(6):
        pages.leader.world.add_node(f"more-{number}")
        pages.leader.see()
        await quick.until("change")
    slow.reads = True
    ended = await slow.until("end")
    assert ended["status"] == 503
    assert "reads more slowly" in ended["detail"]
    assert not quick.task.done()


async def test_so_many_pages_and_no_more(pages: OpenPages, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "MOST_PAGES", 2)
    for page in (pages.open(), pages.open()):
        await page.until("all")
    refused = PageStream(pages.app)
    await asyncio.wait_for(refused.task, 10)
    assert refused.status == 429


async def test_a_standby_shows_nothing(pages: OpenPages) -> None:
    page = pages.open()
    await page.until("all")
    pages.client.active = False
    assert "held by b_1" in (await page.until("end"))["detail"]
    refused = PageStream(pages.app)
    await asyncio.wait_for(refused.task, 10)
    assert refused.status == 503


async def test_the_end_of_the_process_ends_streams(pages: OpenPages) -> None:
    page = pages.open()
    await page.until("all")
    pages.app.state.leaving()
    assert (await page.until("end"))["status"] == 503


async def test_the_hour_is_told(pages: OpenPages) -> None:
    await pages.leader.history.take()
    page = pages.open()
    first = await page.until("all")
    assert [(one["gpus"], one["free"]) for one in first["history"]] == [(24, 24)]
    pages.leader.wait(10)
    await bound(pages.leader, "a", 2, "n0")
    await pages.leader.history.take()
    samples: list[Any] = []
    while not samples:
        samples = (await page.until("change"))["history"]
    assert [one["held"] for one in samples] == [2]


async def test_the_overview_is_the_first_event(pages: OpenPages) -> None:
    event = await pages.open().until("all")
    found = await pages.client.get("/overview")
    assert {**found, "at": ""} == {**event, "at": ""}


async def test_the_page_may_load_nothing_but_itself(pages: OpenPages) -> None:
    for name in ["", *page_files()]:
        answer = await pages.client.http.get(f"/ui/{name}", headers={TOKEN_HEADER: ""})
        assert answer.status_code == 200
        assert answer.headers["content-security-policy"] == POLICY
    assert (await pages.client.http.get("/ui/../routes.py")).status_code == 404
    assert (await pages.client.http.get("/ui")).headers["location"] == "ui/"


@pytest.mark.parametrize(
    "word", ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", 'setTimeout("', "style="]
)
def test_no_text_becomes_markup_or_script(word: str) -> None:
    assert [name for name, data in page_files().items() if word in data.decode()] == []


def test_the_page_names_no_other_host() -> None:
    found = {address for data in page_files().values() for address in re.findall(r"https?://[^\s\"'`<>]+", data.decode())}
    assert found == {"http://www.w3.org/2000/svg"}  # a name, not an address


async def test_the_page_is_small(pages: OpenPages) -> None:
    assert sum(map(len, page_files().values())) < 100_000


async def test_a_jobs_life_is_what_its_status_says(pages: OpenPages) -> None:
    await pages.leader.place("j", 1, 4)
    told = {
        "phase": "Running",
        "attempt": 2,
        "restarts": 1,
        "progress": {"step": 5, "total": 10},
        "compression": {"ratio": "5.0"},
    }
    pages.leader.world.jobs["j"]["status"] |= told
    found = await pages.client.get("/jobs/default/j/life")
    assert {key: found[key] for key in told} == told
    assert "no TrainingJob" in await pages.client.refused("/jobs/default/none/life", 404)
