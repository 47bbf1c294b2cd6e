"""What the live page costs and how quick it is: a cluster held in memory, the extender's own routes, a real Chromium.

    python -m benchmarks.ui [--nodes 1000] [--pods 4000] [--gangs 100] [--rounds 6] [--requests 400] [--changes 60]

Printed: bytes of the page's files; milliseconds to its first paint and to the first node drawn, by the browser's own clock, of
several loads; milliseconds from a change in the cluster to the frame that shows it, with the verb's own time in it; and filter
and prioritize with no page and with ten pages open, in turn within one run, by round. The server is a process of its own; 50
pods a second come, each with a filter and a prioritize. Before each answer one node loses or gains two GPUs, so every round of
the stream has something to tell. The browser reads through the server of `kompakt ui`, on the same machine. The ten pages are
readers in one more process, of the lowest priority, which throw away what they read: what pages draw costs their own machines.
The processor time of the thread that answers is printed beside the clock's, which says little where others use the machine too.
"""

import argparse
import asyncio
import http.client
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import uvloop

from benchmarks.explain import Asked, Granting, add_pods
from benchmarks.extender import Busy, fill, quantile
from benchmarks.kube_scheduler import Client, Taken, body_of
from kompakt_cli.live_server import LiveServer
from kompakt_client.connections import plain
from kompakt_client.requests import ApiRequest
from kompakt_client.reviews import Reviews
from kompakt_client.transport import ApiClient
from kompakt_core.contract import TOKEN_HEADER
from kompakt_core.placement.gang_placement import LEVEL_LABELS
from kompakt_extender.explain.access import AccessGuard
from kompakt_extender.health import health_app
from kompakt_extender.leader_session import LeaderSession
from kompakt_extender.live.routes import page_files
from kompakt_extender.main import listen, prefer_verbs, server
from kompakt_extender.metrics import ExtenderMetrics
from kompakt_extender.project_job import read_job
from kompakt_extender.verbs import verbs_app
from tools.browser import Browser

PAGES = 10
LOADS = 7
VERBS = ("filter", "prioritize")
WARM_UP = 20
PODS_A_SECOND = 50.0
# Of each event the moment in ms when a frame with it was ready, by the clock that time.time() reads as well.
_NOTE_FRAMES = """(() => {
  window.frames_ready = [];
  const ready = () => frames_ready.push(performance.timeOrigin + performance.now());
  const note = () => requestAnimationFrame(() => requestAnimationFrame(ready));
  new MutationObserver(note).observe(document.documentElement, {attributes: true, attributeFilter: ['data-at']});
})()"""


def add_gangs(session: LeaderSession, number: int) -> None:
    """Jobs that wait."""
    for one in range(number):
        scheduling = {"attempt": 1, "state": "Waiting", "reason": "NotEnoughFreeGPUs", "message": "no room for all workers now"}
        made = {
            "metadata": {"name": f"job-{one}", "namespace": f"team-{one % 7}", "uid": f"uid-job-{one}", "resourceVersion": "1"},
            "spec": {"roles": [{"name": "worker", "replicas": 4, "gpusPerReplica": 8}]},
            "status": {"attempt": 1, "scheduling": {**scheduling, "waitingSince": "2026-01-31T12:00:00Z"}},
        }
        session.jobs.set_job(read_job(json.dumps(made).encode()))


async def serve(nodes: int, pods: int, gangs: int) -> None:
    """Answer until killed."""
    prefer_verbs()
    metrics = ExtenderMetrics()
    session = LeaderSession(ApiClient(plain("http://localhost")), metrics, lambda: True, LEVEL_LABELS)
    fill(session, nodes)
    add_pods(session, pods, nodes)
    add_gangs(session, gangs)
    session.ledger.snapshot()
    apps = [verbs_app(Busy(session, nodes), metrics), health_app(Asked(session), metrics, AccessGuard(Reviews(Granting())))]
    sockets = [listen("127.0.0.1", 0) for _ in apps]
    print(*(socket.getsockname()[1] for socket in sockets), flush=True)
    await asyncio.gather(*(server(app).serve([socket]) for app, socket in zip(apps, sockets, strict=True)))


def read_events(port: int) -> None:
    """One page that reads and shows nothing, until killed."""
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("GET", "/v1alpha1/events", headers={TOKEN_HEADER: "any"})
    answer = connection.getresponse()
    while answer.read1(1 << 16):
        pass


def read_all(port: int, pages: int) -> None:
    """Pages that read, one thread each; says so when all have begun. They stand for other machines, so they take what is left."""
    os.nice(19)
    threads = [threading.Thread(target=read_events, args=(port,), daemon=True) for _ in range(pages)]
    for one in threads:
        one.start()
    time.sleep(2.0)  # each is told everything first
    print("reading", flush=True)
    threads[0].join()


@contextmanager
def child(*words: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """This module as another process, and the first line that it prints."""
    with subprocess.Popen([sys.executable, "-m", "benchmarks.ui", *words], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process, process.stdout.readline()
        finally:
            process.terminate()


@contextmanager
def page_server(health: int) -> Iterator[LiveServer]:
    """As `kompakt ui`, with the extender's port in place of the API server's proxy."""
    api = ApiClient(plain(f"http://127.0.0.1:{health}"))

    def passing(method: str, path: str, body: bytes | None, silence: float) -> object:
        return api.begin(ApiRequest(method, path, body=body, accept="*/*", for_proxied={TOKEN_HEADER: "any"}), silence)

    made = LiveServer(passing)  # type: ignore[arg-type]
    thread = threading.Thread(target=made.serve_forever, daemon=True)
    thread.start()
    try:
        yield made
    finally:
        made.shutdown()
        made.server_close()


def loads(browser: Browser, address: str) -> tuple[list[float], list[float]]:
    """Milliseconds to the first paint and to the first node drawn."""
    paint = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
    node = "performance.getEntriesByName('first-node')[0]?.startTime"
    browser.open(address)
    browser.until(node)
    page, found = f"{address.partition('?')[0]}ui/", list[tuple[float, float]]()
    for _ in range(LOADS):
        browser.open("about:blank")
        browser.open(page)
        browser.until(node)
        found.append((browser.until(paint), browser.evaluate(node)))
    return [one[0] for one in found], [one[1] for one in found]


def shown(browser: Browser, verbs: Client, changes: int) -> list[float]:
    """Milliseconds from asking a verb, before whose answer a node changes, to the frame that shows the change."""
    browser.evaluate(_NOTE_FRAMES)
    taken, body = list[float](), body_of(1)
    for number in range(changes):
        before = browser.evaluate("frames_ready.length")
        time.sleep(0.15 + 0.013 * (number % 17))  # at any moment between two rounds
        began = time.time()
        verbs.post("/prioritize", body)
        browser.until(f"frames_ready.length > {before}")
        taken.append(browser.evaluate(f"frames_ready[{before}]") - began * 1e3)
    return taken


def asked(verbs: Client, nodes: int, requests: int) -> Mapping[str, Sequence[Taken]]:
    """What each verb took."""
    body, found = body_of(nodes), {verb: list[Taken]() for verb in VERBS}
    began = time.perf_counter()
    for number in range(requests + WARM_UP):
        time.sleep(max(0.0, began + number / PODS_A_SECOND - time.perf_counter()))
        for verb in VERBS:
            one = verbs.post(f"/{verb}", body)[0]
            if number >= WARM_UP:
                found[verb].append(one)
    return found


def compare(verbs: Client, health: int, nodes: int, rounds: int, requests: int) -> None:
    """Rounds without and with pages in turn: each second pair in the other order, so that a slow minute falls on both."""
    results: dict[int, list[Mapping[str, Sequence[Taken]]]] = {0: [], PAGES: []}
    for number in range(rounds):
        for pages in (0, PAGES) if number % 2 == 0 else (PAGES, 0):
            if not pages:
                results[0].append(asked(verbs, nodes, requests))
                continue
            with child("--read", str(health)):
                results[pages].append(asked(verbs, nodes, requests))
    for verb in VERBS:
        for name, read in (("clock", _clock), ("processor", _processor)):
            report(verb, name, {pages: [[read(one) for one in found[verb]] for found in all_] for pages, all_ in results.items()})


def _clock(one: Taken) -> float:
    return one.clock


def _processor(one: Taken) -> float:
    return one.processor


def report(verb: str, name: str, times: Mapping[int, Sequence[Sequence[float]]]) -> None:
    """p50 and p99 of each side: the median of its rounds, the least and the most; and how much more with pages."""
    for share in (0.5, 0.99):
        sides = {pages: [quantile(one, share) for one in rounds] for pages, rounds in times.items()}
        told = "   ".join(f"{pages:2} pages {statistics.median(found):6.2f} ms {spread(found)}" for pages, found in sides.items())
        more = statistics.median(sides[PAGES]) / statistics.median(sides[0]) - 1
        print(f"{verb:<10} {name:<9} p{share * 100:.0f}   {told}   {more:+.1%}")


def spread(found: Sequence[float], digits: int = 2) -> str:
    return f"({min(found):.{digits}f} to {max(found):.{digits}f})"


def report_page(browser: Browser, page: LiveServer, verbs: Client, changes: int) -> None:
    """Print what concerns the page alone."""
    paint, node = loads(browser, page.address)
    print(f"first paint      {statistics.median(paint):5.0f} ms {spread(paint, 0)}, {len(paint)} loads")
    print(f"first node drawn {statistics.median(node):5.0f} ms {spread(node, 0)}")
    taken = shown(browser, verbs, changes)
    told = f"p50 {statistics.median(taken):4.0f} ms   p99 {quantile([one / 1e3 for one in taken], 0.99):4.0f} ms"
    print(f"change shown     {told}   {spread(taken, 0)}, {len(taken)} changes")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, number in {"nodes": 1000, "pods": 4000, "gangs": 100, "rounds": 6, "requests": 400, "changes": 60}.items():
        parser.add_argument(f"--{name}", type=int, default=number)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--read", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        uvloop.run(serve(given.nodes, given.pods, given.gangs))
        return
    if given.read:
        read_all(given.read, PAGES)
        return
    print(f"page             {sum(map(len, page_files().values()))} bytes in {len(page_files())} files")
    with child("--serve", f"--nodes={given.nodes}", f"--pods={given.pods}", f"--gangs={given.gangs}") as (process, line):
        verbs, health = map(int, line.split())
        client = Client(process.pid, verbs)
        print(f"{given.nodes} nodes, {given.pods} pods, {given.gangs} gangs that wait")
        with page_server(health) as page, Browser() as browser:
            report_page(browser, page, client, given.changes)
        compare(client, health, given.nodes, given.rounds, given.requests)


if __name__ == "__main__":
    main()
