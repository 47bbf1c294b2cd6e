"""What a cluster of processes costs: each program's processor time, and what the API server is asked for."""

import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kompakt_client.requests import ApiRequest
from kompakt_client.transport import connect
from tools.kube.session import ClusterSession

TICK = os.sysconf("SC_CLK_TCK")
SHOWN = 12  # kinds of requests
# Watches last for minutes and count when they end; what they cost is in the processor time of the API server.
REQUEST = re.compile(r"^apiserver_request_total\{(.*)\} ([0-9.e+]+)$", re.MULTILINE)
LABEL = re.compile(r'(\w+)="([^"]*)"')


@dataclass(frozen=True, slots=True)
class Costs:
    """Processor seconds by program, requests by verb and resource, and how many of these the API server gave up or refused."""

    seconds: Mapping[str, float] = field(default_factory=dict)
    requests: Mapping[str, int] = field(default_factory=dict)
    failed: Mapping[str, int] = field(default_factory=dict)

    def since(self, before: "Costs") -> "Costs":
        """What came to it. A program that began anew counts from its beginning."""
        seconds = {
            name: now - (was if (was := before.seconds.get(name, 0.0)) <= now else 0.0) for name, now in self.seconds.items()
        }
        return Costs(seconds, Counter(self.requests) - Counter(before.requests), Counter(self.failed) - Counter(before.failed))

    def lines(self) -> Iterator[str]:
        """For people: the largest first."""
        yield "  processor seconds: " + ", ".join(
            f"{name} {seconds:.0f}" for name, seconds in sorted(self.seconds.items(), key=lambda pair: -pair[1]) if seconds >= 0.5
        )
        common = Counter(self.requests).most_common(SHOWN)
        yield f"  requests: {sum(self.requests.values())}, of which " + ", ".join(f"{count} {name}" for name, count in common)
        if self.failed:
            yield "  failed: " + ", ".join(f"{count} {name}" for name, count in Counter(self.failed).most_common(SHOWN))


def costs(cluster: ClusterSession) -> Costs:
    """Until now."""
    seconds = {name: sum(map(_seconds, _family(process.pid))) for name, process in cluster.plane.processes.items()}
    return Costs(seconds, *read_requests(fetch(cluster, "/metrics")))


def fetch(cluster: ClusterSession, path: str, accept: str = "*/*") -> str:
    """The API server's answer as text."""
    return connect(cluster.kubeconfig).send(ApiRequest("GET", path, accept=accept, seconds=120.0)).decode()


def read_requests(text: str) -> tuple[dict[str, int], dict[str, int]]:
    """From the API server's metrics: requests by verb and resource, and those that failed by verb, resource and code."""
    asked, failed = Counter[str](), Counter[str]()
    for labels, count in REQUEST.findall(text):
        named = dict(LABEL.findall(labels))
        if named.get("verb") == "WATCH":
            continue
        what = f"{named.get('verb')} {named.get('resource')}" + (f"/{named['subresource']}" if named.get("subresource") else "")
        asked[what] += int(float(count))
        if named.get("code", "") >= "429":
            failed[f"{what} {named['code']}"] += int(float(count))
    return dict(asked), dict(failed)


def _family(pid: int) -> Iterator[int]:
    """The process and all below it."""
    yield pid
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return
    for child in children:
        yield from _family(int(child))


def _seconds(pid: int) -> float:
    """Of one process, with those of its children that have ended; 0 for one that has itself."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) / TICK
