"""Asks rank 0 of each running job every half minute how far it is and what its pod saves.

What it answers comes from a user's pod and is not trusted.
"""

import asyncio
import ipaddress
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import aiohttp

from kompakt_core import contract
from kompakt_core.job import measured, progress, reports
from kompakt_core.job.measured import Pace
from kompakt_core.job.pods import WorkerPod
from kompakt_core.job.progress import Sample
from kompakt_core.job.reports import ReceivedReport
from kompakt_operator.workqueue import Key, WorkQueue

TIMEOUT: Final = aiohttp.ClientTimeout(total=2)
AT_ONCE: Final = 50
MOST_BYTES: Final = 64 << 10
SAMPLES: Final = 11  # the estimate looks at the last five minutes


@dataclass
class Watched:
    """Rank 0 of one job (its uid) in its current attempt, and what it has said; `told`: the report that was last news."""

    job: str
    pod: WorkerPod
    asked: bool = True
    samples: deque[Sample] = field(default_factory=lambda: deque(maxlen=SAMPLES))
    said: Mapping[str, Any] = field(default_factory=dict)
    pace: Pace | None = None
    report: Mapping[str, Any] | None = None
    told: Mapping[str, Any] | None = None


class Scraper:
    """`follow` says whom to ask; the queue gets the key of each job whose progress is news."""

    def __init__(self, queue: WorkQueue, seconds: int, port: int = contract.METRICS_PORT) -> None:
        self._queue, self._seconds, self._port = queue, seconds, port
        self._watched: dict[Key, Watched] = {}
        # The timeout counts from the question on, not from when it stands in line behind pods that keep their connections.
        self._turns = asyncio.Semaphore(AT_ONCE)

    def follow(self, key: Key, job: str, pod: WorkerPod | None) -> None:
        """Ask this pod of the job with that uid from now on; None: nobody any more. Another pod, or job, begins anew."""
        known = self._watched.get(key)
        if known is not None and known.job != job:
            self.forget(key)
            known = None
        if pod is None:
            if known is not None:
                known.asked = False
        elif known is None or known.pod.uid != pod.uid:
            self._watched[key] = Watched(job, pod, bool(self._seconds))
        else:
            known.pod, known.asked = pod, bool(self._seconds)

    def forget(self, key: Key) -> None:
        """The job is over."""
        self._watched.pop(key, None)

    def said(self, key: Key, job: str, attempt: int) -> Mapping[str, Any]:
        """status.progress of that attempt; empty where nothing has been heard of it, or nobody is asked any more."""
        known = self._of(key, job, attempt)
        return known.said if known is not None and known.asked else {}

    def pace(self, key: Key, job: str, attempt: int) -> Pace | None:
        """What is heard of that attempt's steps."""
        known = self._of(key, job, attempt)
        return known.pace if known is not None and known.asked else None

    def compression(self, key: Key, job: str, attempt: int) -> ReceivedReport | None:
        """What was heard last of that attempt's compression: it counts until the pod has left a last word."""
        known = self._of(key, job, attempt)
        return None if known is None or known.report is None else ReceivedReport(known.pod.uid, known.report)

    def _of(self, key: Key, job: str, attempt: int) -> Watched | None:
        known = self._watched.get(key)
        return known if known is not None and (known.job, known.pod.attempt) == (job, attempt) else None

    async def run(self) -> None:
        """Until cancelled."""
        async with session() as connections:
            while True:
                await asyncio.sleep(self._seconds or 3600)
                await self.round(connections)

    async def round(self, connections: aiohttp.ClientSession) -> None:
        """Ask everybody once."""
        asked = [(key, watched) for key, watched in self._watched.items() if watched.asked]
        await asyncio.gather(*(self._ask(connections, key, watched) for key, watched in asked))

    async def _ask(self, connections: aiohttp.ClientSession, key: Key, watched: Watched) -> None:
        try:
            async with self._turns:
                page = await _page(connections, url_of(watched.pod.ip, self._port))
        except (aiohttp.ClientError, TimeoutError, ValueError):
            return  # it does not say: nothing is known, and nothing is wrong
        self._hear(key, watched, page)

    def _hear(self, key: Key, watched: Watched, page: str) -> None:
        said, pace = self._progress(watched, page) or watched.said, measured.read_page(page) or watched.pace
        watched.report = reports.read_page(page) or watched.report
        news = reports.is_news(watched.told, watched.report)
        if (said, pace) != (watched.said, watched.pace) or news:
            watched.said, watched.pace, watched.told = said, pace, watched.report
            self._queue.add(key)

    def _progress(self, watched: Watched, page: str) -> Mapping[str, Any]:
        found = progress.read_page(page)
        if found is None:
            return {}
        if watched.samples and found.step < watched.samples[-1].step:
            watched.samples.clear()  # it went back to a checkpoint
        watched.samples.append(Sample(time.time(), found.step))
        return progress.written(found, progress.eta(watched.samples, found.total))


def session() -> aiohttp.ClientSession:
    """Connections for strangers: few at once, short ones; what comes compressed stays so, as it could be large."""
    connector = aiohttp.TCPConnector(limit=AT_ONCE, force_close=True)
    return aiohttp.ClientSession(connector=connector, timeout=TIMEOUT, auto_decompress=False)


def url_of(ip: str, port: int) -> str:
    """Raises ValueError for what is no address."""
    address = ipaddress.ip_address(ip)
    return f"http://[{address}]:{port}/metrics" if address.version == 6 else f"http://{address}:{port}/metrics"


async def _page(connections: aiohttp.ClientSession, url: str) -> str:
    """The page, "" for anything but one of at most 64 kB."""
    async with connections.get(url, allow_redirects=False) as answer:
        body = bytearray()
        async for chunk in answer.content.iter_chunked(8192):
            body += chunk
            if len(body) > MOST_BYTES:
                return ""
        return body.decode(errors="replace") if answer.status == 200 else ""
