"""A real Prometheus scrapes our parts, reads the chart's alerts, and each fires by a fault and ends with it.

Those of device plugins and training pods: tests/unit/device_plugin/test_alerts.py, tests/unit/runtime/test_stalled.py. The rules
are sixty times faster here; that each waits as long as it says is shown by promtool in tests/unit/tools/test_monitoring.py.
"""

import json
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
import yaml

from kompakt_core.contract import TOKEN_AUDIENCE
from tests.support.cluster.drills import Drilled, drilled
from tests.support.cluster.gangs import GANG, plain_pod
from tests.support.cluster.replacing import OPERATOR
from tests.support.cluster.storm import left_sockets_collected
from tests.support.prometheus import Job, Prometheus, job, prometheus
from tests.support.turns import in_turn
from tools.docs.dashboards import dashboard_pages, queries
from tools.docs.repository import ROOT
from tools.kube import golang
from tools.kube.components import Component
from tools.kube.jobs import JobManifest, apply, training_job
from tools.kube.parts import READER, account_token, render
from tools.kube.session import KubectlFailed, eventually

pytestmark = [pytest.mark.filterwarnings("ignore:unclosed <ssl.SSLSocket:ResourceWarning"), in_turn(0)]
NO_WAIT = {"consolidation": {"mode": "NoWait"}}


@dataclass(frozen=True, slots=True)
class Watched:
    """The cluster, its proxy, and who watches it."""

    drill: Drilled
    prometheus: Prometheus
    verbs: str

    def well(self) -> None:
        """The API server answers as it should."""
        self.drill.trouble(0)
        self.drill.silence()

    def quiet(self) -> None:
        """Until all is well and nothing fires."""
        eventually(self.prometheus.scrapes_all, "all is scraped")
        eventually(lambda: not self.prometheus.firing(), "nothing fires")

    @contextmanager
    def fires(self, *alerts: str, again: Callable[[], object] = lambda: None) -> Iterator[None]:
        """The block is a fault: until its end these fire, and afterwards no more. again: goes on doing it meanwhile."""
        self.quiet()
        yield
        eventually(lambda: (again(), set(alerts) <= self.prometheus.firing())[1], f"{alerts} fire")


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    folder = tmp_path_factory.mktemp("alerts")
    with drilled(folder, "--watch-patience=10") as drill, prometheus(folder / "prometheus", scraped(drill)) as found:
        extender = drill.cluster.components[drill.pair.extender]
        yield Watched(drill, found, f"http://127.0.0.1:{flag(extender, 'verbs-port')}")


def scraped(drill: Drilled) -> list[Job]:
    """The operator, the extender, and kube-scheduler, which wants a token for the API server."""
    folder, api, parts = drill.cluster.plane.folder, drill.cluster.parts.api, drill.cluster.components
    (folder / "token").write_text(account_token(api, READER, audiences=[TOKEN_AUDIENCE]))
    (folder / "api-token").write_text(account_token(api, READER))
    ours, theirs = ({"credentials_file": str(folder / name)} for name in ("token", "api-token"))
    secure = {"scheme": "https", "tls_config": {"insecure_skip_verify": True}, "authorization": theirs}
    return [
        job("operator", f"127.0.0.1:{flag(parts[OPERATOR], 'health-port')}", authorization=ours),
        job("scheduler", f"127.0.0.1:{drill.pair.health_port}", authorization=ours),
        job("kube-scheduler", f"127.0.0.1:{flag(parts[drill.pair.scheduler], 'secure-port')}", **secure),
    ]


@pytest.fixture(autouse=True)
def well_again(watched: Watched) -> Iterator[None]:
    """Whatever a test did to the cluster ends with it, and so do the alerts."""
    cluster = watched.drill.cluster
    with left_sockets_collected():
        yield
        watched.well()
        for name in cluster.components.keys() - cluster.plane.processes.keys():
            cluster.restart(name)
        watched.quiet()


def flag(component: Component, name: str) -> str:
    return next(word.partition("=")[2] for word in component.argv if word.startswith(f"--{name}="))


def jobs(watched: Watched, prefix: str, number: int) -> list[JobManifest]:
    return [
        apply(watched.drill.cluster, "default", training_job(f"{prefix}-{one}", seconds="0.5", placement=NO_WAIT))
        for one in range(number)
    ]


def done(made: list[JobManifest]) -> None:
    for one in made:
        one.await_phase("Succeeded")
        one.delete()


def test_every_query_of_the_dashboards_is_answered(watched: Watched) -> None:
    watched.quiet()
    done(jobs(watched, "seen", 2))
    answers = {
        query: watched.prometheus.query(query.replace("$__rate_interval", "30s"))
        for text in dashboard_pages(ROOT).values()
        for query in queries(json.loads(text))
    }
    gauges = [query for query in answers if query.startswith(("sum(kompakt_operator_", "sum(kompakt_extender_"))]
    assert len(gauges) > 4
    assert [query for query in gauges if not answers[query]] == []
    assert watched.prometheus.query("scheduler_schedule_attempts_total")
    with pytest.raises(urllib.error.HTTPError, match="400"):
        watched.prometheus.query("sum(")


def test_what_the_chart_makes_for_the_prometheus_operator_is_what_its_definitions_say(watched: Watched) -> None:
    cluster = watched.drill.cluster
    crds = (
        golang.sources("monitoring", "github.com/prometheus-operator/prometheus-operator") / "example" / "prometheus-operator-crd"
    )
    for plural in ("podmonitors", "prometheusrules"):
        cluster.kubectl("apply", "--server-side", "-f", str(crds / f"monitoring.coreos.com_{plural}.yaml"))
    eventually(lambda: "prometheusrules" in cluster.kubectl("api-resources", "--cached=false"), "its kinds are served")
    switches = dict.fromkeys(("podMonitors", "rules"), "true") | {"kubeSchedulerScrapeClass": "api", "scrapeClass": "kompakt"}
    chart = render(cluster.find, {f"monitoring.{name}": value for name, value in switches.items()})
    made = [one for one in chart if one["apiVersion"] == "monitoring.coreos.com/v1"]
    assert sorted(one["kind"] for one in made) == ["PodMonitor"] * 5 + ["PrometheusRule"]
    text = yaml.safe_dump_all(made)
    said = cluster.kubectl("apply", "--server-side", "--dry-run=server", "-f", "-", stdin=text)
    assert said.count("serverside-applied") == len(made)
    with pytest.raises(KubectlFailed, match="field not declared in schema"):
        cluster.kubectl("apply", "--server-side", "--dry-run=server", "-f", "-", stdin=text.replace("interval:", "every:"))


def test_an_operator_that_is_gone(watched: Watched) -> None:
    with watched.fires("KompaktOperatorInactive", "KompaktPartDown"):
        watched.drill.cluster.kill(OPERATOR)
    assert "KompaktSchedulerInactive" not in watched.prometheus.firing()


def test_a_scheduler_that_is_gone(watched: Watched) -> None:
    with watched.fires("KompaktSchedulerInactive", "KompaktPartDown"):
        watched.drill.cluster.kill_pair(watched.drill.pair)
    assert "KompaktOperatorInactive" not in watched.prometheus.firing()


@contextmanager
def waiting_pod(watched: Watched) -> Iterator[None]:
    """One of two pods of a gang, which waits behind our gate for the other."""
    core = watched.drill.cluster.core
    core.create_namespaced_pod("default", plain_pod("waits", size=2))
    try:
        yield
    finally:
        core.delete_namespaced_pod("waits", "default", grace_period_seconds=0)


def test_a_pod_behind_our_gate_while_no_planner_is_there(watched: Watched) -> None:
    with waiting_pod(watched), watched.fires("KompaktGatedPodsUnseen"):
        watched.drill.cluster.kill_pair(watched.drill.pair)


def test_a_pod_behind_our_gate_whose_gang_gets_no_object_though_the_planner_is_there(watched: Watched) -> None:
    watched.quiet()
    watched.drill.trouble(1, "500", only=f"/gangs/{GANG}")
    with waiting_pod(watched):
        eventually(lambda: watched.prometheus.firing() == {"KompaktGatedPodsUnseen"}, "that alert fires, and no other")
        watched.well()
        watched.quiet()
        (found,) = watched.prometheus.query("sum(kompakt_operator_gated_pods)")
        assert found["value"][1] == "1", "it waits on"


# What our parts hear of the API server, and how many jobs come meanwhile.
FAULTS: dict[str, tuple[Callable[[Drilled], None], int]] = {
    "KompaktOperatorWatchStuck": (lambda drill: drill.silence("pods"), 1),
    "KompaktReconcilesFail": (lambda drill: drill.trouble(1, "500", only="/services"), 9),
    "KompaktOperatorBacklog": (lambda drill: drill.trouble(0, delay=3.0, only="/pods"), 40),
    "KompaktBindsFail": (lambda drill: drill.trouble(1, "503", only="/binding"), 6),
    "KompaktBindsUnconfirmed": (lambda drill: drill.trouble(1, "cut before", only="/binding"), 6),
}


@pytest.mark.parametrize("alert", FAULTS)
def test_trouble_with_the_api_server_fires_and_its_end_lets_all_jobs_run(watched: Watched, alert: str) -> None:
    fault, number = FAULTS[alert]
    with watched.fires(alert):
        fault(watched.drill)
        made = jobs(watched, alert.lower(), number)
    watched.well()
    done(made)
    watched.quiet()
    assert alert not in watched.prometheus.firing()


def test_verbs_that_end_in_errors(watched: Watched) -> None:
    def ask() -> None:
        request = urllib.request.Request(f"{watched.verbs}/filter", b"{", method="POST")
        with pytest.raises(urllib.error.HTTPError, match="400"):
            urllib.request.urlopen(request, timeout=5)

    with watched.fires("KompaktExtenderFails", again=ask):
        pass
