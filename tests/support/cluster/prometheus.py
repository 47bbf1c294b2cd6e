"""A real Prometheus beside a cluster, with the chart's alerts sixty times faster: minutes are seconds."""

import json
import re
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from kompakt_core.contract import TOKEN_AUDIENCE
from tools.kube.components import Component, answers
from tools.kube.parts import READER, account_token
from tools.kube.ports import free_ports
from tools.kube.session import ClusterSession
from tools.prometheus import find

ALERTS = Path(__file__).resolve().parents[3] / "charts" / "kompakt" / "files" / "alerts.yaml"
JOB = "kompakt-system/kompakt-"  # as a PodMonitor names it
KUBE_SCHEDULER = "kube-scheduler"


@dataclass(frozen=True, slots=True)
class Prometheus:
    """What it says."""

    address: str
    targets: int

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The vector that an expression gives now. Raises urllib.error.HTTPError where Prometheus cannot read it."""
        return list(self._asked(f"query?query={urllib.parse.quote(expression)}")["result"])

    def firing(self) -> set[str]:
        """Names of alerts."""
        found = self._asked("alerts")["alerts"]
        return {alert["labels"]["alertname"] for alert in found if alert["state"] == "firing"}

    def scrapes_all(self) -> bool:
        """Whether each target answered the last time."""
        return len(self.query("up == 1")) == self.targets

    def _asked(self, what: str) -> Any:
        with urllib.request.urlopen(f"{self.address}/api/v1/{what}", timeout=10) as answer:
            return json.load(answer)["data"]


def hastened(rules: str) -> str:
    """The same rules with seconds for minutes, and minutes for hours."""
    faster = re.sub(r"\[(\d+)m\]|\[1h\]", lambda found: f"[{found[1] or 60}s]", rules)
    return re.sub(r"(for:|offset) (\d+)m\b", r"\1 \2s", faster)


@contextmanager
def prometheus(cluster: ClusterSession, targets: Mapping[str, str]) -> Iterator[Prometheus]:
    """It scrapes each second. targets: addresses by part."""
    folder, port = cluster.plane.folder / "prometheus", free_ports(1)[0]
    folder.mkdir()
    config = folder / "prometheus.yaml"
    config.write_text(yaml.safe_dump(_config(cluster, folder, targets)))
    (folder / "alerts.yaml").write_text(hastened(ALERTS.read_text()))
    argv = (
        *(str(find("prometheus")), f"--config.file={config}", f"--storage.tsdb.path={folder / 'data'}"),
        f"--web.listen-address=127.0.0.1:{port}",
    )
    address = f"http://127.0.0.1:{port}"
    cluster.start(Component("prometheus", argv, lambda: answers(f"{address}/-/ready")))
    yield Prometheus(address, len(targets))
    cluster.kill("prometheus")


def _config(cluster: ClusterSession, folder: Path, targets: Mapping[str, str]) -> dict[str, Any]:
    api = cluster.parts.api
    (folder / "token").write_text(account_token(api, READER, audiences=[TOKEN_AUDIENCE]))
    (folder / "api-token").write_text(account_token(api, READER))
    jobs = [_job(f"{JOB}{part}", address, folder / "token") for part, address in targets.items() if part != KUBE_SCHEDULER]
    if KUBE_SCHEDULER in targets:
        job = _job(f"{JOB}{KUBE_SCHEDULER}", targets[KUBE_SCHEDULER], folder / "api-token")
        jobs.append({**job, "scheme": "https", "tls_config": {"insecure_skip_verify": True}})
    often = {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"}
    return {"global": often, "rule_files": [str(folder / "alerts.yaml")], "scrape_configs": jobs}


def _job(name: str, address: str, token: Path) -> dict[str, Any]:
    return {
        "job_name": name,
        "authorization": {"credentials_file": str(token)},
        "static_configs": [{"targets": [address]}],
    }
