"""A real Prometheus of a test's own, with the chart's alerts faster than they are."""

import json
import re
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.support.needs import monitor
from tools.kube.components import answers
from tools.kube.ports import free_ports
from tools.kube.processes import launch_tied, stop, wait_until

ALERTS = Path(__file__).resolve().parents[2] / "charts" / "kompakt" / "files" / "alerts.yaml"
Job = dict[str, Any]  # of scrape_configs
PREFIX = "kompakt-system/kompakt-"
# Fire as long as nobody scrapes that part.
ABSENT = {"operator": "KompaktOperatorInactive", "scheduler": "KompaktSchedulerInactive"}


@dataclass(frozen=True, slots=True)
class Prometheus:
    """What it says."""

    address: str
    parts: tuple[str, ...]  # that it scrapes

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The vector that an expression gives now. Raises urllib.error.HTTPError where Prometheus cannot read it."""
        return list(self._asked(f"query?query={urllib.parse.quote(expression)}")["result"])

    def firing(self) -> set[str]:
        """Names of alerts, but those about a part that is not scraped at all."""
        found = {one["labels"]["alertname"] for one in self._asked("alerts")["alerts"] if one["state"] == "firing"}
        return found - {alert for part, alert in ABSENT.items() if part not in self.parts}

    def scrapes_all(self) -> bool:
        """Whether each target answered the last time."""
        return len(self.query("up == 1")) == len(self.parts)

    def _asked(self, what: str) -> Any:
        with urllib.request.urlopen(f"{self.address}/api/v1/{what}", timeout=10) as answer:
            return json.load(answer)["data"]


def hastened(rules: str, minute: float) -> str:
    """The same rules with minutes of so many seconds."""

    def shorter(found: re.Match[str]) -> str:
        minutes = int(found[2]) * (60 if found[3] == "h" else 1)
        return f"{found[1]}{round(minutes * minute * 1000)}ms"

    return re.sub(r"(\[|for: |offset )(\d+)(m|h)\b", shorter, rules)


@contextmanager
def prometheus(folder: Path, jobs: Sequence[Job], minute: float = 1.0) -> Iterator[Prometheus]:
    """It scrapes each second. minute: how many seconds a minute of the rules takes."""
    folder.mkdir(parents=True)
    often = {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"}
    config = {"global": often, "rule_files": [str(folder / "alerts.yaml")], "scrape_configs": list(jobs)}
    (folder / "prometheus.yaml").write_text(yaml.safe_dump(config))
    (folder / "alerts.yaml").write_text(hastened(ALERTS.read_text(), minute))
    address = f"127.0.0.1:{free_ports(1)[0]}"
    flags = (f"--config.file={folder / 'prometheus.yaml'}", f"--storage.tsdb.path={folder / 'data'}")
    program = launch_tied((str(monitor("prometheus")), *flags, f"--web.listen-address={address}"), folder / "log")
    try:
        wait_until(lambda: answers(f"http://{address}/-/ready") or not program.alive(), 60)
        assert program.alive(), (folder / "log").read_text()[-2000:]
        yield Prometheus(f"http://{address}", tuple(one["job_name"].removeprefix(PREFIX) for one in jobs))
    finally:
        stop([program], 0)


def job(name: str, address: str, **more: Any) -> Job:
    """A job of scrape_configs with one target, named as that of a PodMonitor."""
    return {"job_name": f"{PREFIX}{name}", "static_configs": [{"targets": [address]}], **more}
