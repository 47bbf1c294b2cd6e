"""charts/kompakt/files/dashboards: a Grafana dashboard for each part, a panel for each metric that the programs declare."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from tools.docs.metric_names import MetricName, parts

FOLDER: Final = "charts/kompakt/files/dashboards"
Panel = dict[str, Any]
_WIDTH, _HEIGHT, _COLUMNS = 12, 8, 2
_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
# Grafana's word for the unit of a value, and of its rate.
_UNITS: Final = {
    "": ("short", "cps"),
    "seconds": ("s", "s"),
    "steps": ("short", "short"),
    "share": ("percentunit", "percentunit"),
    "bytes": ("bytes", "Bps"),
    "bytes per second": ("Bps", "Bps"),
    "samples per second": ("cps", "cps"),
}
_TRAINING: Final = "Training pods"
_OF_A_POD: Final = ("namespace", "pod")  # what Prometheus adds to each series of a pod


def dashboard_pages(root: Path) -> dict[str, str]:
    """Each dashboard as a file's text."""
    return {f"{FOLDER}/{_slug(title)}.json": json.dumps(_dashboard(title, names), indent=1) + "\n" for title, _, names in parts()}


def queries(dashboard: dict[str, Any]) -> Iterator[str]:
    """All that it asks Prometheus."""
    for panel in dashboard["panels"]:
        yield from (target["expr"] for target in panel["targets"])


def _slug(title: str) -> str:
    return title.lower().replace(" and ", "-").replace(" ", "-")


def _dashboard(title: str, names: list[MetricName]) -> dict[str, Any]:
    source = {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Data source"}
    return {
        "uid": f"kompakt-{_slug(title)}",
        "title": f"kompakt / {title}",
        "tags": ["kompakt"],
        "schemaVersion": 39,
        "time": {"from": "now-3h", "to": "now"},
        "refresh": "30s",
        "templating": {"list": [source]},
        "panels": [_panel(number, one, title == _TRAINING) for number, one in enumerate(names)],
    }


def _panel(number: int, one: MetricName, training: bool) -> Panel:
    row, column = divmod(number, _COLUMNS)
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": one.name,
        "description": one.text,
        "datasource": _SOURCE,
        "gridPos": {"x": column * _WIDTH, "y": row * _HEIGHT, "w": _WIDTH, "h": _HEIGHT},
        "fieldConfig": {"defaults": {"unit": _UNITS[one.unit][one.kind == "counter"]}, "overrides": []},
        "targets": [
            {"refId": ref, "expr": expression, "legendFormat": legend, "datasource": _SOURCE}
            for ref, (legend, expression) in zip("AB", _series(one, training), strict=False)
        ],
    }


def _series(one: MetricName, training: bool) -> Iterator[tuple[str, str]]:
    """Legends and queries. Numbers of things are added up; sizes and speeds are averaged, over nodes too: a panel of a thousand
    lines shows nothing.
    """
    labels = [label for label in one.labels if label != "node"] + [*(_OF_A_POD if training else ())]
    legend = " ".join(f"{{{{{label}}}}}" for label in labels)
    if one.kind == "histogram":
        for share in ("0.5", "0.99"):
            rate = _by(["le", *labels], "sum", f"rate({one.name}_bucket[$__rate_interval])")
            yield f"p{float(share) * 100:g} {legend}".strip(), f"histogram_quantile({share}, {rate})"
    elif one.kind == "counter":
        yield legend or "all", _by(labels, "sum", f"rate({one.name}[$__rate_interval])")
    else:
        yield legend or "all", _by(labels, "avg" if one.unit else "sum", one.name)


def _by(labels: list[str], how: str, what: str) -> str:
    return f"{how} by ({', '.join(labels)}) ({what})" if labels else f"{how}({what})"
