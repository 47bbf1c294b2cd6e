"""The operator's port over real HTTP: probes are for kubelet, figures for who may read them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from kompakt_client.reviews import Reviews
from kompakt_operator.health import MOST_WAITING, MetricsGuard, OperatorHealth, serve
from kompakt_operator.workqueue import WorkQueue
from tests.support.client.reviewing import Reviewing

ADMIN = {"Kompakt-Token": "token-of-admin"}


def url_of(runner: web.AppRunner) -> str:
    """On IPv4: a free port is another one for each family."""
    return f"http://127.0.0.1:{next(address[1] for address in runner.addresses if len(address) == 2)}"


@asynccontextmanager
async def served(reviews: Reviews | None) -> AsyncIterator[str]:
    runner = await serve(OperatorHealth(), 0, MetricsGuard(reviews))
    try:
        yield url_of(runner)
    finally:
        await runner.cleanup()


async def ask(url: str, headers: dict[str, str]) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.get(url, headers=headers) as answer:
        return answer.status, await answer.text()


@pytest.mark.parametrize(
    ("headers", "status"), [({}, 401), ({"Kompakt-Token": "forged"}, 401), ({"Authorization": "Bearer token-of-admin"}, 200)]
)
async def test_figures_are_for_who_may_read_them(headers: dict[str, str], status: int) -> None:
    async with served(Reviews(Reviewing())) as url:
        found, text = await ask(f"{url}/metrics", headers)
        assert found == status
        assert ("kompakt_operator_active" in text) is (status == 200)
        assert (await ask(f"{url}/healthz", {}))[0] == 200, "kubelet has no token"


async def test_figures_are_nobodys_while_the_api_server_does_not_say() -> None:
    async with served(Reviews(Reviewing(down=True))) as url:
        assert (await ask(f"{url}/metrics", ADMIN))[0] == 503


async def test_without_reviews_everybody_may() -> None:
    async with served(None) as url:
        assert (await ask(f"{url}/metrics", {}))[0] == 200


async def test_the_work_queues_length_is_that_of_the_moment() -> None:
    health, queue = OperatorHealth(), WorkQueue()
    health.waiting = queue.__len__
    assert "kompakt_operator_workqueue_depth 0\n" in health.text()
    queue.add(("default", "j"))
    assert "kompakt_operator_workqueue_depth 1\n" in health.text(), "also while all workers are busy"


async def test_few_wait_for_the_api_servers_word() -> None:
    guard = MetricsGuard(Reviews(Reviewing()))
    guard._waiting = MOST_WAITING
    runner = await serve(OperatorHealth(), 0, guard)
    try:
        url = url_of(runner)
        assert (await ask(f"{url}/metrics", ADMIN))[0] == 503
        guard._waiting = 0
        answers = await asyncio.gather(*(ask(f"{url}/metrics", ADMIN) for _ in range(MOST_WAITING)))
        assert {status for status, _ in answers} == {200}
        assert guard._waiting == 0
    finally:
        await runner.cleanup()


@asynccontextmanager
async def serving(pulse: OperatorHealth) -> AsyncIterator[str]:
    runner = await serve(pulse, 0, MetricsGuard(None))
    try:
        yield url_of(runner)
    finally:
        await runner.cleanup()


READY = {"hears_lease": lambda: True}


@pytest.mark.parametrize(
    ("state", "status", "words"),
    [
        ({}, 503, "has not answered about the Lease"),
        (READY, 200, "ok"),
        ({**READY, "active": True}, 503, "not all is listed yet"),
        ({**READY, "active": True, "listed": True}, 200, "ok"),
        ({"active": True, "listed": True}, 503, "has not answered about the Lease"),
        ({**READY, "active": True, "listed": True, "stuck_watch": "the watch of Pods"}, 503, "the watch of Pods"),
    ],
    ids=["just started", "standby", "lists", "at work", "out of touch", "stuck"],
)
async def test_ready_is_who_works_or_could_take_over(state: dict[str, Any], status: int, words: str) -> None:
    async with serving(OperatorHealth(**state)) as url:
        found, text = await ask(f"{url}/readyz", {})
        assert (found, words in text) == (status, True), text
        restarted = (await ask(f"{url}/healthz", {}))[0] == 503
        assert restarted is ("stuck_watch" in state), "who is not ready need not be restarted"
