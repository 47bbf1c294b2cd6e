"""Alerts and dashboards: they ask for metrics that the programs declare, alerts fire when they should, and each has a runbook."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.needs import monitor
from tests.support.prometheus import hastened
from tools.docs.dashboards import FOLDER, dashboard_pages, queries
from tools.docs.metric_names import MetricName, parts
from tools.docs.repository import ROOT
from tools.kube.command import CommandFailed, output

ALERTS = ROOT / "charts" / "kompakt" / "files" / "alerts.yaml"
RUNBOOKS = ROOT / "docs" / "runbooks.md"
RULES = {rule["alert"]: rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]}
DECLARED = {one.name: one for _, _, names in parts() for one in names}
# What Prometheus adds to each series, a histogram's own, and what our parts do not declare.
ADDED = {"job", "instance", "namespace", "pod", "le"}
NOT_OURS = {"up"}
OPERATOR, EXTENDER, PLUGIN = "kompakt_operator", "kompakt_extender", "kompakt_device_plugin"
GATED, SEEN = f"{OPERATOR}_gated_pods", "kompakt_planner_gated_pods"
TRAINING = '{namespace="a",pod="b"}'
# Series with a sample every half minute, in promtool's notation; after so many minutes the alert does not fire, after so many it
# does.
FIRE: dict[str, tuple[dict[str, str], int, int]] = {
    "KompaktPartDown": ({'up{job="kompakt-system/kompakt-operator"}': "1 0x20"}, 5, 6),
    "KompaktOperatorInactive": ({f'{OPERATOR}_active{{instance="{one}"}}': "0x20" for one in "ab"}, 1, 2),
    "KompaktOperatorWatchStuck": ({f"{OPERATOR}_watch_stuck": "0x1 1x20"}, 1, 2),
    "KompaktOperatorBacklog": ({f"{OPERATOR}_workqueue_depth": "0 1x40"}, 9, 11),
    "KompaktReconcilesFail": (
        {
            f'{OPERATOR}_reconciles_total{{outcome="{name}"}}': f"0+{by}x60"
            for name, by in (("done", 2), ("retried", 2), ("failed", 1))
        },
        5,
        6,
    ),
    "KompaktSchedulerInactive": ({f'{EXTENDER}_active{{instance="{one}"}}': "1x20" for one in "ab"}, 1, 2),
    "KompaktBindsFail": (
        {f'{EXTENDER}_verb_errors_total{{verb="bind"}}': "0+3x60", f'{EXTENDER}_verb_seconds_count{{verb="bind"}}': "0+4x60"},
        5,
        6,
    ),
    "KompaktBindsUnconfirmed": ({f"{EXTENDER}_unconfirmed_binds": "0 2x40"}, 5, 6),
    "KompaktExtenderFails": ({f'{EXTENDER}_verb_errors_total{{verb="filter"}}': "0+1x60"}, 10, 12),
    "KompaktGatedPodsUnseen": ({GATED: "0 3x40", SEEN: "0 2x40"}, 5, 6),
    "KompaktGPUUnhealthy": ({f'{PLUGIN}_gpus{{state="unhealthy"}}': "0 1x20"}, 1, 2),
    "KompaktNodeNotReady": ({f'{PLUGIN}_condition{{type="Ready"}}': "1 0x20"}, 5, 6),
    "KompaktOtherDevicePlugin": ({f'{PLUGIN}_condition{{type="Conflict"}}': "0 1x20"}, 1, 2),
    "KompaktGPUsNotAsChosen": ({f"{PLUGIN}_corrected_pods_total": "0x4 1x20"}, 2, 3),
    "KompaktAllocationsRejected": ({f"{PLUGIN}_rejected_allocations_total": "0x4 1x20"}, 2, 3),
    "KompaktTrainingStalled": (
        {f"kompakt_progress_step{TRAINING}": "1+1x10 11x200", f"kompakt_progress_total_steps{TRAINING}": "20x200"},
        34,
        37,
    ),
}
# Further ways in which an alert fires: how many of it, by minutes.
ALSO: list[tuple[str, dict[str, str], dict[int, int]]] = [
    ("KompaktOperatorInactive", {'up{job="others"}': "1x20"}, {1: 0, 2: 1}),
    ("KompaktSchedulerInactive", {'up{job="others"}': "1x20"}, {1: 0, 2: 1}),
    ("KompaktSchedulerInactive", {f"{EXTENDER}_active": "1 0x20"}, {2: 0, 3: 1}),
    ("KompaktBindsUnconfirmed", {f"{EXTENDER}_unconfirmed_binds": "0 1x40"}, {5: 0, 6: 1}),
    ("KompaktGatedPodsUnseen", {GATED: "3x40"}, {2: 0, 4: 1}),  # no planner was ever scraped
    ("KompaktGatedPodsUnseen", {GATED: "3x40", SEEN: "3x10 _x30"}, {9: 0, 11: 1}),  # it is gone after five minutes
    ("KompaktGPUsNotAsChosen", {f"{PLUGIN}_corrected_pods_total": "0x4 1x200"}, {50: 1, 70: 0}),
    ("KompaktAllocationsRejected", {f"{PLUGIN}_rejected_allocations_total": "0x4 1x200"}, {50: 1, 70: 0}),
    (
        "KompaktBindsFail",  # one pod after the other, each a few times: never for long
        {
            f'{EXTENDER}_verb_errors_total{{verb="bind"}}': "0 1 2 3 3x20 3 4 5 6 6x20",
            f'{EXTENDER}_verb_seconds_count{{verb="bind"}}': "0 1 2 3 4+1x19 24 25 26 27 28+1x20",
        },
        dict.fromkeys(range(1, 22), 0),
    ),
]
# For an hour nothing fires: a standby beside who is active, what comes and goes, what is over, what is not ours.
QUIET: dict[str, dict[str, str]] = {
    "KompaktPartDown": {'up{job="kompakt-system/kompakt-workers"}': "0x120"},
    "KompaktOperatorInactive": {f'{OPERATOR}_active{{instance="{one}"}}': f"{one}x120" for one in (0, 1)},
    "KompaktSchedulerInactive": {f'{EXTENDER}_active{{instance="{one}"}}': f"{one}x120" for one in (0, 1)},
    "KompaktOperatorBacklog": {f"{OPERATOR}_workqueue_depth": " ".join(["9x15 0"] * 8)},
    "KompaktReconcilesFail": {
        f'{OPERATOR}_reconciles_total{{outcome="{name}"}}': f"0+{by}x120" for name, by in (("done", 3), ("retried", 2))
    },
    "KompaktBindsFail": {
        f'{EXTENDER}_verb_errors_total{{verb="bind"}}': "0+2x120",
        f'{EXTENDER}_verb_seconds_count{{verb="bind"}}': "0+5x120",
    },
    "KompaktBindsUnconfirmed": {f"{EXTENDER}_unconfirmed_binds": " ".join(["9x7 0"] * 16)},
    "KompaktExtenderFails": {f'{EXTENDER}_verb_errors_total{{verb="filter"}}': "0x10 9x110"},
    "KompaktGatedPodsUnseen": {  # ever more, then ever fewer; the planner is scraped before the operator, then after it
        GATED: "0+8x60 480-8x60",
        SEEN: "0 0+8x59 472-8x59",
    },
    "KompaktNodeNotReady": {f'{PLUGIN}_condition{{type="Conflict"}}': "0x120"},
    "KompaktTrainingStalled": {
        f"kompakt_progress_step{TRAINING}": "20x120",
        f"kompakt_progress_total_steps{TRAINING}": "20x120",
        'kompakt_progress_step{pod="slow"}': " ".join(f"{step}x50" for step in range(3)),
        'kompakt_progress_total_steps{pod="slow"}': "20x120",
    },
}
SERIES = re.compile(r"\b(kompakt_\w+|up)\b(?:\{([^}]*)\})?")
BY = re.compile(r"\bby \(([^)]*)\)")


def all_queries() -> list[str]:
    found = [query for text in dashboard_pages(ROOT).values() for query in queries(json.loads(text))]
    return [*found, *(rule["expr"] for rule in RULES.values())]


def declared(series: str) -> MetricName:
    return DECLARED.get(series) or DECLARED[re.sub(r"_(bucket|sum|count)$", "", series)]


def unknown(query: str) -> list[str]:
    """Metrics and labels of a query that nobody declares."""
    wrong = []
    for series, matchers in SERIES.findall(query):
        try:
            labels = set(declared(series).labels) if series not in NOT_OURS else set()
        except KeyError:
            wrong.append(series)
            continue
        asked = {part.split("=")[0].split("!")[0].strip() for part in matchers.split(",") if part}
        grouped = {label.strip() for group in BY.findall(query) for label in group.split(",")}
        wrong += sorted((asked | grouped) - labels - ADDED)
    return wrong


def test_every_query_names_metrics_and_labels_that_are_declared() -> None:
    assert len(all_queries()) > 50
    assert {query: wrong for query in all_queries() if (wrong := unknown(query))} == {}


@pytest.mark.parametrize(
    "query", ["sum(kompakt_nothing)", 'kompakt_planner_gangs{phase="x"}', "sum by (phase) (kompakt_planner_gangs)"]
)
def test_a_metric_or_label_that_nobody_declares_is_found(query: str) -> None:
    assert unknown(query)


def test_every_metric_is_on_a_dashboard() -> None:
    shown = {name for query in all_queries() for name, _ in SERIES.findall(query)}
    assert {name for name in DECLARED if not {name, f"{name}_bucket"} & shown} == set()


def test_dashboards_are_told_apart_and_their_panels_do_not_overlap() -> None:
    found = [json.loads(text) for text in dashboard_pages(ROOT).values()]
    assert len({one["uid"] for one in found}) == len(found) == len(list((ROOT / FOLDER).iterdir()))
    for one in found:
        places = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in one["panels"]}
        assert len(places) == len(one["panels"]) == len({panel["id"] for panel in one["panels"]})


def test_every_alert_has_a_runbook_and_every_runbook_an_alert() -> None:
    sections = re.findall(r"^## (Kompakt\w+)$", RUNBOOKS.read_text(), flags=re.MULTILINE)
    assert sections == list(RULES)
    links = {name: rule["annotations"]["runbook_url"] for name, rule in RULES.items()}
    assert links == {name: f"docs/runbooks.md#{name.lower()}" for name in RULES}
    assert {rule["labels"]["severity"] for rule in RULES.values()} == {"critical", "warning", "info"}


def test_rules_are_read_by_prometheus() -> None:
    assert f"{len(RULES)} rules found" in output([monitor("promtool"), "check", "rules", ALERTS])


def firing(alert: str, series: dict[str, str], expected: dict[int, int]) -> dict[str, Any]:
    """One test of promtool: how many such alerts fire after so many minutes."""
    asked = f'count(ALERTS{{alertname="{alert}", alertstate="firing"}}) or vector(0)'
    return {
        "interval": "30s",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [
            {"expr": asked, "eval_time": f"{minutes}m", "exp_samples": [{"labels": "{}", "value": number}]}
            for minutes, number in expected.items()
        ],
    }


def replayed(folder: Path, tests: list[dict[str, Any]]) -> str:
    file = folder / "tests.yaml"
    file.write_text(yaml.safe_dump({"rule_files": [str(ALERTS)], "evaluation_interval": "30s", "tests": tests}))
    return output([monitor("promtool"), "test", "rules", file])


def test_alerts_fire_after_their_time_and_not_before(tmp_path: Path) -> None:
    assert FIRE.keys() == RULES.keys()
    usual = [firing(name, series, {before: 0, after: 1}) for name, (series, before, after) in FIRE.items()]
    replayed(tmp_path, usual + [firing(*case) for case in ALSO])


def test_what_is_well_fires_nothing(tmp_path: Path) -> None:
    replayed(tmp_path, [firing(name, series, dict.fromkeys(range(5, 60, 5), 0)) for name, series in QUIET.items()])


def test_a_replay_that_ends_otherwise_is_told(tmp_path: Path) -> None:
    series, before, _ = FIRE["KompaktPartDown"]
    with pytest.raises(CommandFailed, match="FAILED"):
        replayed(tmp_path, [firing("KompaktPartDown", series, {before: 1})])


def test_a_minute_of_the_rules_takes_as_long_as_a_test_says() -> None:
    rules = "expr: changes(x[30m]) and x offset 30m\nfor: 2m\nexpr: increase(y[1h]) # 3m"
    expected = "expr: changes(x[3000ms]) and x offset 3000ms\nfor: 200ms\nexpr: increase(y[6000ms]) # 3m"
    assert hastened(rules, 0.1) == expected
