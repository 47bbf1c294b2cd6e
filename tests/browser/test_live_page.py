"""The live page in a browser that reaches nothing but our server, under the path of the API server's service proxy."""

import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from kompakt_cli.access import Cluster
from kompakt_cli.live_server import LiveServer
from tests.support.cli.standin import kubeconfig, serving
from tests.support.extender.explain_client import ExplainClient, bound
from tests.support.extender.leader import Leader
from tests.support.extender.live_page import PROXY, ServedCluster, served
from tests.support.extender.world import World
from tools.browser import Browser

NEWS = "document.getElementById('news').innerText"
LISTEN = (
    f"heard = []; new MutationObserver(() => heard.push({NEWS})).observe(document.getElementById('news'), {{childList: true}})"
)
WAITING = "[...document.querySelectorAll('#waiting li')].map(e => e.innerText.split('\\n').join(' '))"
HOSTILE = "<img src=x onerror=alert(1)>"
DRAWN = "document.querySelectorAll('#nodes svg').length"
# Of every text that shows: its colour on what lies below it, as WCAG 2 counts contrast.
CONTRAST = """
(() => {
  const numbers = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map(v => v / 255).map(v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
  const ground = (e) => { for (; e; e = e.parentElement) { const c = numbers(getComputedStyle(e).backgroundColor);
    if (c.length < 4 || c[3] > 0) return c; } return [255, 255, 255]; };
  const poor = [];
  for (const e of document.querySelectorAll('body *')) {
    if (![...e.childNodes].some(n => n.nodeType === 3 && n.data.trim()) || !e.checkVisibility() || e.closest('svg')) continue;
    const [a, b] = [light(numbers(getComputedStyle(e).color)), light(ground(e))];
    const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
    if (ratio < 4.5) poor.push(`${e.tagName} ${e.className} ${e.textContent.slice(0, 40)}: ${ratio.toFixed(2)}`);
  }
  return poor;
})()
"""


async def two_nodes() -> ExplainClient:
    """One pod holds half a node; one gang has GPUs, one waits for more than there are."""
    world = World()
    world.add_node("dgx-0")
    world.add_node("dgx-1")
    client = ExplainClient(Leader(world))
    client.leader.take_over()
    await bound(client.leader, "trainer", 4, "dgx-0")
    await client.leader.place("small", 1, 4)
    world.add_gang("large", 2, 8, namespace="team-a")
    await client.leader.settle()
    return client


@pytest.fixture
def cluster() -> Iterator[ServedCluster]:
    with served(two_nodes()) as found:
        yield found


def test_what_waits_stands_first_with_why_and_until_when(browser: Browser, cluster: ServedCluster) -> None:
    cluster.open(browser)
    (text,) = browser.until(f"{WAITING}.length === 1 && {WAITING}")
    assert "team-a/large" in text
    assert cluster.leader.scheduling("large")["message"] in text
    assert "until GPUs are free for all its pods at once: it asks for 16, 8 are free; no time limit" in text
    assert "16 GPUs, 2 pods of 8" in text
    first = browser.evaluate("document.querySelector('main h2').innerText")
    assert first == "1 waiting"
    assert browser.evaluate("document.title") == "1 gang waiting - kompakt"
    assert browser.evaluate("document.querySelector('#running li').innerText").startswith("default/small")


def test_a_change_shows_without_a_click(browser: Browser, cluster: ServedCluster) -> None:
    cluster.open(browser)
    browser.until(f"{DRAWN} === 2")
    browser.evaluate("document.getElementById('waiting').firstElementChild.mark = 'the same element'")

    async def come(leader: Leader) -> None:
        await bound(leader, "late", 2, "dgx-1" if leader.seats("small")[0].node == "dgx-0" else "dgx-0")
        leader.world.add_gang("later", 4, 8)
        await leader.settle()

    cluster.do(come)
    browser.until("document.getElementById('count-held').innerText === '10'")
    browser.until(f"{WAITING}.length === 2")
    assert "default/late" in browser.evaluate("document.getElementById('nodes').innerText")
    assert browser.evaluate("[...document.getElementById('waiting').children].some(e => e.mark === 'the same element')")
    browser.until(f"{NEWS}.includes('later waits: ')")


def test_why_a_new_gang_waits_is_told_and_nothing_before_that_is_known(browser: Browser, cluster: ServedCluster) -> None:
    cluster.open(browser)
    browser.until(f"{WAITING}.length === 1")

    async def come(leader: Leader) -> None:
        leader.world.add_gang("later", 4, 8)
        leader.see()

    cluster.do(come)
    browser.until(f"{WAITING}.length === 2")
    assert "later" not in browser.evaluate(NEWS)
    cluster.do(Leader.settle)
    message = cluster.leader.scheduling("later")["message"]
    browser.until(f"{NEWS} === 'later waits: {message}'")


def test_what_comes_soon_after_other_news_is_told_too(browser: Browser, cluster: ServedCluster) -> None:
    cluster.open(browser)
    browser.until(f"{WAITING}.length === 1")
    browser.evaluate(LISTEN)
    for number, name in enumerate(("first", "second", "third"), 2):

        async def come(leader: Leader, name: str = name) -> None:
            leader.world.add_gang(name, 4, 8)
            await leader.settle()

        cluster.do(come)
        browser.until(f"{WAITING}.length === {number}")
    browser.until("['first', 'second', 'third'].every(name => heard.some(text => text.includes(`${name} waits: `)))")


def test_a_gang_that_gets_its_gpus_leaves_the_list(browser: Browser, cluster: ServedCluster) -> None:
    cluster.open(browser)
    browser.until(f"{WAITING}.length === 1")

    async def grow(leader: Leader) -> None:
        for number in range(4):
            leader.world.add_node(f"new-{number}")
        leader.see()
        leader.wait(60)
        leader.ask_all_again()
        await leader.settle()

    cluster.do(grow)
    browser.until("!document.getElementById('nothing-waits').hidden")
    assert browser.evaluate("document.getElementById('running').innerText").startswith("team-a/large")


def test_texts_of_the_cluster_are_no_markup(browser: Browser, cluster: ServedCluster) -> None:
    cluster.open(browser)

    async def attack(leader: Leader) -> None:
        leader.world.add_node("bad", rack=HOSTILE)
        leader.see()
        await bound(leader, HOSTILE, 1, "bad")
        leader.world.add_gang(f"{HOSTILE}-gang", 40, 8, namespace="team-a")
        await leader.settle()

    cluster.do(attack)
    browser.until(f"document.getElementById('waiting').innerText.includes('{HOSTILE}-gang')")
    browser.until(f"document.getElementById('nodes').innerText.includes('default/{HOSTILE}')")
    browser.evaluate("[...document.querySelectorAll('#nodes button')].find(e => e.innerText === 'bad').click()")
    browser.until(f"document.getElementById('detail-body').innerText.includes('default/{HOSTILE}')")
    assert browser.evaluate("document.querySelectorAll('img, iframe, object, [onerror]').length") == 0
    assert browser.troubles == []
    asked = [url for url in browser.requested if not url.startswith(("data:", "blob:", "about:"))]
    assert {urlsplit(url).hostname for url in asked} == {"127.0.0.1"}
    assert all(urlsplit(url).path.startswith(PROXY) for url in asked), asked


def test_everything_is_reached_by_keys(browser: Browser, cluster: ServedCluster) -> None:
    cluster.open(browser)
    browser.until(f"{WAITING}.length === 1 && {DRAWN} === 2")
    focus = "document.activeElement.innerText || document.activeElement.id || document.activeElement.tagName"
    browser.evaluate("document.querySelector('.skip').focus()")
    seen = [browser.evaluate(focus)]
    while "dgx-1" not in seen and len(seen) < 30:
        browser.press("Tab")
        seen.append(browser.evaluate(focus))
        assert browser.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none", seen
    wanted = ["Skip to what waits", "The last hour", "team-a/large", "default/small", "1", "Ring", "filter", "dgx-0", "dgx-1"]
    assert [one for one in seen if one in wanted] == wanted
    browser.press("Enter")
    browser.until("document.getElementById('detail').open && document.getElementById('detail-body').innerText.includes('Links')")
    browser.press("Escape")
    browser.until("!document.getElementById('detail').open")
    assert browser.evaluate(focus) == "dgx-1"


def test_a_jobs_life_is_told(browser: Browser, cluster: ServedCluster) -> None:
    restart = {"time": "2026-01-31T11:00:00Z", "reason": "PodFailed", "message": "pod small-worker-0-a1: exit code 1"}
    told = {
        "phase": "Running",
        "attempt": 2,
        "restarts": 1,
        "lastRestart": restart,
        "progress": {"step": 900, "total": 5000, "loss": "0.693"},
        "compression": {
            "active": True,
            "mode": "ErrorBounded",
            "ratio": "5.00",
            "peakBytes": 10**10,
            "plainPeakBytes": 3 * 10**10,
        },
    }
    cluster.leader.world.jobs["small"]["status"] |= told
    cluster.open(browser)
    browser.until("document.querySelector('#running button') !== null")
    browser.evaluate("document.querySelector('#running button').click()")
    body = "document.getElementById('detail-body').innerText"
    browser.until(f"{body}.includes('Pods')")
    text = browser.evaluate(body)
    for words in ("one machine", "exit code 1", "900 of 5000 (18%)", "0.693", "5.00 times less", "10.0 GB instead of 30.0 GB"):
        assert words in text
    assert browser.evaluate("document.querySelector('#detail progress').value") == 900


def test_what_if_by_two_clicks(browser: Browser, cluster: ServedCluster) -> None:
    cluster.open(browser)
    browser.until(f"{DRAWN} === 2")
    browser.evaluate("[...document.querySelectorAll('#sizes button')].find(e => e.innerText === '4').click()")
    browser.until("document.getElementById('what-if-says').innerText.includes('could take that now')")
    assert browser.evaluate("document.querySelectorAll('#nodes > li.chosen').length") == 1
    assert browser.until("document.querySelectorAll('#nodes li:first-child .gpu.chosen').length") == 4
    assert browser.evaluate("document.querySelector('#nodes .offer').innerText").startswith("1. GPU ")
    browser.evaluate("[...document.querySelectorAll('#sizes button')].find(e => e.innerText === '16').click()")
    browser.until("document.getElementById('what-if-says').innerText.includes('no node could take that now')")
    browser.evaluate("document.getElementById('forget').click()")
    browser.until(f"{DRAWN} === 2")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [360, 768, 1400])
def test_it_can_be_read(browser: Browser, cluster: ServedCluster, tmp_path: Path, width: int, dark: bool) -> None:
    browser.look(width=width, dark=dark)
    cluster.leader.world.break_gpu("dgx-1", 7)
    cluster.open(browser)
    browser.until(f"{WAITING}.length === 1")
    browser.evaluate("document.getElementById('history').open = true")
    browser.evaluate("document.querySelector('#sizes button').click()")
    browser.until("document.getElementById('what-if-says').innerText !== ''")
    assert browser.evaluate(CONTRAST) == []
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    browser.evaluate("document.querySelector('#waiting button').click()")
    browser.until("document.getElementById('detail-body').innerText.includes('Pods')")
    assert browser.evaluate(CONTRAST) == []
    browser.screenshot(tmp_path / "page.png")


def test_a_lost_stream_is_said_and_taken_up_again(browser: Browser, cluster: ServedCluster) -> None:
    cluster.open(browser)
    cluster.client.active = False
    text = browser.until("document.getElementById('link').dataset.state === 'lost' && document.getElementById('link').innerText")
    assert "the scheduler's Lease is held by b_1" in text
    assert browser.evaluate(WAITING), "what was known stays"
    cluster.client.active = True
    browser.until("document.getElementById('link').dataset.state === 'live'")


def test_a_stream_that_its_token_has_outlived_is_begun_anew(browser: Browser, cluster: ServedCluster) -> None:
    """As by `kompakt ui`, which sends a new token by itself: nobody is asked for one."""
    cluster.open(browser)
    browser.evaluate(
        """{ const real = window.fetch; window.streams = 0; window.fetch = (address, ...more) => {
            if (!String(address).endsWith('/events') || (window.streams += 1) > 1) return real(address, ...more);
            const told = 'event: end\\ndata: {"status": 401, "detail": "no token that the API server knows"}\\n\\n';
            return Promise.resolve(new Response(told)); } }"""
    )
    cluster.client.active = False
    browser.until("document.getElementById('link').dataset.state === 'lost'")
    cluster.client.active = True
    browser.until("window.streams > 1 && document.getElementById('link').dataset.state === 'live'")
    assert browser.evaluate("document.getElementById('ask-token').hidden")


async def thousand_nodes() -> ExplainClient:
    world = World()
    for number in range(1000):
        world.add_node(f"node-{number}", rack=f"rack-{number // 20}")
    client = ExplainClient(Leader(world))
    client.leader.take_over()
    for number in range(200):
        await bound(client.leader, f"pod-{number}", 4, f"node-{number}")
    world.add_gang("large", 4, 16)
    await client.leader.settle()
    return client


def test_a_thousand_nodes_are_drawn_where_one_looks(browser: Browser) -> None:
    """Sizes and counts; times are what benchmarks.ui prints."""
    with served(thousand_nodes()) as cluster:
        cluster.open(browser)
        browser.until(f"{DRAWN} > 0")
        assert browser.evaluate("document.querySelectorAll('#nodes > li').length") == 1000
        assert browser.evaluate(DRAWN) < 100
        browser.evaluate(
            "{ const read = JSON.parse; window.sizes = []; JSON.parse = t => { sizes.push(String(t).length); return read(t); } }"
        )

        async def bind(leader: Leader) -> None:
            await bound(leader, "late", 4, "node-1")

        cluster.do(bind)
        browser.until("document.getElementById('nodes').innerText.includes('default/late')")
        assert max(browser.evaluate("sizes")) < 4000, "a change tells what changed"
        browser.evaluate("document.getElementById('nodes').lastElementChild.scrollIntoView()")
        browser.until("document.getElementById('nodes').lastElementChild.querySelector('svg') !== null")
        browser.evaluate(
            "{ const f = document.getElementById('filter'); f.value = 'pod-77'; f.dispatchEvent(new Event('input')); }"
        )
        browser.until("document.getElementById('shown').innerText === '1 of 1000 nodes'")


def test_kompakt_ui_shows_it_without_a_token_in_the_browser(browser: Browser, tmp_path: Path) -> None:
    with serving(two_nodes()) as (_, port):
        known = Cluster(str(kubeconfig(tmp_path, port)), None, "kompakt-system", "kompakt-explain")
        server = LiveServer(known.passed)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            browser.open(server.address)
            browser.until("document.getElementById('link')?.dataset.state === 'live'")
            assert browser.until(f"{WAITING}.length === 1 && {WAITING}")
            assert browser.evaluate("location.href") == f"http://127.0.0.1:{server.server_port}/ui/"
            assert browser.evaluate("document.cookie") == ""
            browser.evaluate("document.querySelector('#waiting button').click()")
            browser.until("document.getElementById('detail-body').innerText.includes('Pods')")
            browser.open("about:blank")
        finally:
            server.shutdown()
            server.server_close()
            thread.join(10)
