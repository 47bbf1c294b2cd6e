"""The explain API's page in a browser that reaches nothing but our server, under the path of the API server's service proxy."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import uvicorn
from fastapi import FastAPI

from kompakt_extender.health import health_app
from kompakt_extender.main import listen, server
from tests.support.extender.explain_client import ExplainClient, bound, proxied
from tests.support.extender.guard import TOKEN, guarded_by
from tests.support.extender.leader import Leader
from tests.support.extender.world import World
from tools.browser import Browser

PROXY = "/api/v1/namespaces/kompakt-system/services/kompakt-explain:http/proxy"
WHAT_IF = "#operations-explain-what_if_v1alpha1_what_if_post"


async def one_pod() -> ExplainClient:
    world = World()
    world.add_node("dgx-0")
    world.add_node("pcie-0", "a100-pcie-8-bridge-pairs")
    client = ExplainClient(Leader(world))
    client.leader.take_over()
    await bound(client.leader, "trainer", 4, "dgx-0")
    return client


@pytest.fixture
def base() -> Iterator[str]:
    """Where the API lies: as behind the API server."""
    listening = listen("127.0.0.1", 0)
    running: list[uvicorn.Server] = []

    async def serve() -> None:
        client, elsewhere = await one_pod(), FastAPI(docs_url=None, openapi_url=None)
        running.append(
            server(proxied(health_app(client, client.leader.metrics, guarded_by(client.api_server)), PROXY, elsewhere))
        )
        await running[0].serve([listening])

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    yield f"http://127.0.0.1:{listening.getsockname()[1]}{PROXY}"
    running[0].should_exit = True
    thread.join(10)


def test_the_page_lists_every_question_and_needs_no_other_host(browser: Browser, base: str, tmp_path: Path) -> None:
    browser.open(f"{base}/")
    browser.until("document.querySelectorAll('.opblock').length >= 9")
    browser.screenshot(tmp_path / "page.png")
    paths = browser.evaluate(
        "[...document.querySelectorAll('.opblock-summary-path')].map(e => e.textContent.replace(/\\u200b/g, ''))"
    )
    assert paths == [
        "/v1alpha1/nodes",
        "/v1alpha1/nodes/{name}",
        "/v1alpha1/what-if",
        "/v1alpha1/pods/{namespace}/{name}",
        "/v1alpha1/jobs/{namespace}/{name}",
        "/v1alpha1/jobs/{namespace}/{name}/life",
        "/v1alpha1/gangs/{namespace}/{name}",
        "/v1alpha1/overview",
        "/v1alpha1/events",
    ]
    asked = [url for url in browser.requested if not url.startswith(("data:", "blob:", "about:"))]
    assert asked
    assert {urlsplit(url).hostname for url in asked} == {"127.0.0.1"}
    assert all(urlsplit(url).path.startswith(PROXY) for url in asked), asked
    assert browser.troubles == []
    assert (tmp_path / "page.png").stat().st_size > 10_000


def test_a_question_asked_on_the_page_is_answered_behind_the_proxy(browser: Browser, base: str, tmp_path: Path) -> None:
    browser.open(f"{base}/docs")
    browser.until(f"document.querySelector('{WHAT_IF}') !== null")
    browser.evaluate(f"ui.preauthorizeApiKey('APIKeyHeader', '{TOKEN}')")  # what the button Authorize does
    browser.evaluate(f"document.querySelector('{WHAT_IF} .opblock-summary-control').click()")
    browser.until(f"document.querySelector('{WHAT_IF} .try-out__btn') !== null")
    browser.evaluate(f"document.querySelector('{WHAT_IF} .try-out__btn').click()")
    browser.until(f"document.querySelector('{WHAT_IF} .execute') !== null")
    browser.evaluate(f"document.querySelector('{WHAT_IF} .execute').click()")
    text = browser.until(f"document.querySelector('{WHAT_IF} .live-responses-table tbody .response-col_description')?.innerText")
    browser.screenshot(tmp_path / "asked.png")
    assert '"node": "pcie-0"' in text
    assert '"ideal"' in text
    assert any(url == f"{base}/v1alpha1/what-if" for url in browser.requested)
