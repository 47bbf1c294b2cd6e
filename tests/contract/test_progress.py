"""From the progress file to the job's status: the runtime's page and the operator's reader agree, whatever else may answer."""

import http.server
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest

from kompakt_core.job import measured, reports
from kompakt_core.job import progress as read
from kompakt_core.job.pods import WorkerPod
from kompakt_operator import scrape
from kompakt_operator.scrape import Scraper, url_of
from kompakt_operator.workqueue import WorkQueue
from kompakt_runtime.config import RuntimeConfig
from kompakt_runtime.figures import export, metrics, pace
from kompakt_runtime.figures import progress as made
from kompakt_runtime.figures.counted import Figures
from kompakt_runtime.figures.pace import StepCounter

KEY = ("ml", "j")
UID = "job"
RANK_0 = WorkerPod("j-worker-0-a1", "pod", 1, "worker", 0, phase="Running", ip="127.0.0.1")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_both_sides_use_the_same_names() -> None:
    assert {name: field for field, (name, _) in made.METRICS.items()} == read.METRICS
    assert {name: field for field, (name, _) in pace.METRICS.items()} == measured.METRICS
    assert export.PAGE_MARK == reports.PAGE_MARK


class Steady(StepCounter):
    """A pace that has seen enough."""

    def said(self) -> dict[str, object]:
        return {"stepSeconds": 0.12345, "gradientBytes": 4096, "ranks": 2}


@contextmanager
def runtime(counter: StepCounter | None = None, **settings: object) -> Iterator[int]:
    """The runtime's page of a process with these settings; its port."""
    port = free_port()
    server = metrics.serve(RuntimeConfig(metrics_port=port, **settings), *([counter] if counter else []))
    assert server is not None
    try:
        yield port
    finally:
        server.shutdown()
        server.server_close()


async def taken(queue: WorkQueue) -> int:
    """How many looks at jobs were called for; none are any more."""
    count = len(queue)
    while len(queue):
        queue.done(await queue.take())
    return count


def following(queue: WorkQueue, port: int) -> Scraper:
    scraper = Scraper(queue, 30, port)
    scraper.follow(KEY, UID, RANK_0)
    return scraper


async def test_the_pace_of_a_training_is_heard_with_its_progress_and_without() -> None:
    queue = WorkQueue()
    with runtime(Steady()) as port:
        scraper = following(queue, port)
        async with scrape.session() as session:
            await scraper.round(session)
            assert await taken(queue) == 1
            await scraper.round(session)
    assert scraper.pace(KEY, UID, 1) == measured.Pace(0.12, 4096, 2)
    assert scraper.pace(KEY, UID, 2) is None, "of an attempt that is over"
    assert len(queue) == 0, "the same answer is no news"
    assert scraper.said(KEY, UID, 1) == {}


async def test_what_a_pod_saves_is_heard_while_it_trains_and_that_it_goes_on_is_no_news(tmp_path: Path) -> None:
    queue, looks = WorkQueue(), []
    with runtime(mode="ErrorBounded", state_dir=str(tmp_path), attempt=1) as port:
        scraper = following(queue, port)
        async with scrape.session() as session:
            for plain, saved, steps in [(0, 0, 1), (700, 100, 2), (7000, 1000, 20), (7000, 700, 30)]:
                row = Figures(plain_bytes=plain, saved_bytes=saved, forwards=steps, steps=steps, compressed=min(saved, 1))
                export.write_report(str(tmp_path), 1, export.report(row))
                await scraper.round(session)
                looks.append(await taken(queue))
    heard = scraper.compression(KEY, UID, 1)
    assert heard is not None
    assert looks == [0, 1, 0, 1], "nothing compressed yet in the first step; the same ratio is no news, another one is"
    found = reports.merged([heard.report])
    assert (heard.pod, found["ratio"], found["steps"], found["mode"]) == (RANK_0.uid, "10.00", 30, "ErrorBounded")
    assert found["complete"] is False


async def asked(port: int, times: int = 1) -> tuple[dict[str, object], int]:
    """What the operator knows of the job after asking so often, and how many looks at the job that called for."""
    queue, looks = WorkQueue(), 0
    scraper = following(queue, port)
    async with scrape.session() as session:
        for _ in range(times):
            await scraper.round(session)
            looks += await taken(queue)
    return dict(scraper.said(KEY, UID, 1)), looks


async def test_what_a_script_writes_reaches_the_status(tmp_path: Path) -> None:
    file = tmp_path / "progress.json"
    with runtime(progress_file=str(file)) as port:
        assert await asked(port) == ({}, 0), "nothing said yet"
        file.write_text('{"step": 120, "total": 1000, "loss": 0.53, "samplesPerSecond": 812.4}')
        said = {"step": 120, "total": 1000, "loss": "0.53", "samplesPerSecond": "812.4"}
        assert await asked(port, times=2) == (said, 1), "the same answer is no news"


def test_another_pod_begins_anew_and_nobody_is_asked_once_the_job_is_over() -> None:
    scraper = Scraper(WorkQueue(), 30)
    scraper.follow(KEY, UID, RANK_0)
    scraper._watched[KEY].said = {"step": 1}
    assert scraper.said(KEY, UID, 1) == {"step": 1}
    assert scraper.said(KEY, UID, 2) == {}, "of an attempt that is over"
    scraper.follow(KEY, UID, WorkerPod("j-worker-0-a2", "other", 2, "worker", 0, ip="127.0.0.1"))
    assert scraper.said(KEY, UID, 2) == {}
    scraper._watched[KEY].said, scraper._watched[KEY].report = {"step": 2}, {"kompakt": 1}
    scraper.follow(KEY, UID, None)
    assert not scraper._watched[KEY].asked
    assert scraper.said(KEY, UID, 2) == {}
    assert scraper.compression(KEY, UID, 2) == reports.ReceivedReport("other", {"kompakt": 1}), (
        "it counts until the pod has left a last word"
    )
    scraper.forget(KEY)
    assert scraper.compression(KEY, UID, 2) is None


def test_a_new_job_of_the_same_name_begins_anew() -> None:
    """Deleted and made again between two looks (kubectl replace --force): both are in their first attempt."""
    scraper = Scraper(WorkQueue(), 30)
    scraper.follow(KEY, UID, RANK_0)
    scraper._watched[KEY].said, scraper._watched[KEY].report = {"step": 1}, {"kompakt": 1}
    assert scraper.compression(KEY, UID, 1) is not None
    assert (scraper.said(KEY, "successor", 1), scraper.compression(KEY, "successor", 1)) == ({}, None)
    scraper.follow(KEY, "successor", None)
    assert scraper._watched == {}, "nobody asks the old one's pod any more"


@contextmanager
def answering(port: int, status: int, body: bytes, *, after: float = 0.0, **headers: str) -> Iterator[None]:
    """A server that takes so many seconds."""

    class Stranger(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            time.sleep(after)
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name.replace("_", "-"), value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", port), Stranger) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield
        server.shutdown()
        thread.join()


GOOD = b"kompakt_progress_step 3\n"


@pytest.mark.parametrize(
    ("status", "body", "headers", "said"),
    [
        (200, GOOD, {}, {"step": 3}),
        (200, b"x" * (64 << 10) + b"\n" + GOOD, {}, {}),
        (302, GOOD, {"Location": "/elsewhere"}, {}),
        (200, GOOD, {"Content_Encoding": "gzip"}, {"step": 3}),
        (500, GOOD, {}, {}),
        (200, b"\xff\n" + GOOD, {}, {"step": 3}),
    ],
    ids=["a page", "too large", "a redirect", "nothing is unpacked", "an error", "no UTF-8"],
)
async def test_answers_of_a_strangers_server(status: int, body: bytes, headers: dict[str, str], said: dict[str, int]) -> None:
    port = free_port()
    with answering(port, status, body, **headers):
        assert (await asked(port))[0] == said


async def test_pods_that_take_a_connection_and_say_nothing_keep_nobody_from_being_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scrape, "TIMEOUT", aiohttp.ClientTimeout(total=0.3))
    port = free_port()

    async def heard_of() -> dict[str, object]:
        scraper = Scraper(WorkQueue(), 30, port)
        for number in range(scrape.AT_ONCE):
            scraper.follow(("ml", f"mute-{number}"), UID, replace(RANK_0, uid=f"mute-{number}", ip="127.0.0.2"))
        scraper.follow(KEY, UID, RANK_0)
        async with scrape.session() as session:
            await scraper.round(session)
        return dict(scraper.said(KEY, UID, 1))

    with socket.create_server(("127.0.0.2", port), backlog=2 * scrape.AT_ONCE), answering(port, 200, GOOD, after=0.1):
        assert await heard_of() == {"step": 3}


async def test_nobody_answers_is_no_error() -> None:
    assert await asked(free_port()) == ({}, 0)


def test_addresses_of_both_families_and_nothing_else() -> None:
    assert (url_of("10.0.0.1", 9402), url_of("fd00::1", 9402)) == (
        "http://10.0.0.1:9402/metrics",
        "http://[fd00::1]:9402/metrics",
    )
    with pytest.raises(ValueError, match="does not appear to be"):
        url_of("example.com/", 9402)
