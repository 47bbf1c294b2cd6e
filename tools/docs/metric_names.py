"""docs/reference/metrics.md: every metric of operator, extender, device plugin and training pods, as the programs declare it."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from tools.docs.rooms import cell

PAGE: Final = "docs/reference/metrics.md"
_HEAD: Final = """# Metrics

<!-- Made by `make docs` from what the programs declare; do not edit. -->

Every part answers `/metrics` in the text format of Prometheus. [Operations](../operations.md) says who may scrape, how, and which
figures to watch. A histogram `x` has the series `x_bucket`, `x_sum` and `x_count`.
"""
# The unit by the end of a name; the first that fits.
_UNITS: Final = (
    ("_bytes_per_second", "bytes per second"),
    ("_samples_per_second", "samples per second"),
    ("_seconds", "seconds"),
    ("_bytes", "bytes"),
    ("_ratio", "share"),
    ("_steps", "steps"),
)


@dataclass(frozen=True, slots=True)
class MetricName:
    """One metric; a counter's name ends with _total, as it is scraped."""

    name: str
    kind: str
    labels: tuple[str, ...]
    text: str

    @property
    def unit(self) -> str:
        """Of its values; empty where they are numbers of things."""
        bare = self.name.removesuffix("_total")
        return next((unit for end, unit in _UNITS if bare.endswith(end)), "")


def metric_pages(root: Path) -> dict[str, str]:
    """The whole page."""
    return {PAGE: "\n".join([_HEAD, *(_section(*part) for part in parts())])}


def metric_problems(root: Path) -> list[str]:
    """Metrics that say nothing of themselves."""
    return [f"{PAGE}: {one.name} has no help text" for _, _, names in parts() for one in names if not one.text]


def parts() -> Iterator[tuple[str, str, list[MetricName]]]:
    """Each part's title, where it answers, and its metrics."""
    yield "Operator", "Port 8080 of the operator's pods, in the chart.", list(_of_operator())
    extender = "Port 8902 of the scheduler's pods. `process_*`, of the Prometheus client, tell the process's memory and time."
    yield "Extender and planner", extender, list(_of_extender())
    yield "Device plugin", "Port 8903 of the plugin's pods.", list(_of_plugin())
    yield "Training pods", "Port 9402 of a pod with the runtime, while its first training process runs.", list(_of_runtime())


def _of_operator() -> Iterator[MetricName]:
    from kompakt_operator.health import OperatorHealth

    health = OperatorHealth()
    health.reconciled("done", 0.0)  # without one there is no sample to tell the label's name
    return _of_text(health.text())


def _of_extender() -> Iterator[MetricName]:
    from kompakt_extender.metrics import ExtenderMetrics

    return _declared(vars(ExtenderMetrics()).values())


def _of_plugin() -> Iterator[MetricName]:
    from kompakt_device_plugin.metrics import PluginMetrics

    return _declared(vars(PluginMetrics()).values())


def _of_runtime() -> Iterator[MetricName]:
    from kompakt_runtime.figures import pace, progress

    row = {"forwards": 1, "peak": dict.fromkeys(progress.PEAKS, 1), "rawBytes": {"Small": 1}, **dict.fromkeys(progress.SUMS, 1)}
    return _of_text(progress.page(dict.fromkeys(progress.METRICS, 1), dict.fromkeys(pace.METRICS, 1), [row]))


def _of_text(text: str) -> Iterator[MetricName]:
    for family in text_string_to_metric_families(text):
        yield _named(family, tuple({label: "" for one in family.samples for label in one.labels if label != "le"}))


def _declared(values: Iterable[Any]) -> Iterator[MetricName]:
    """Of the client's own metrics and of collectors of ours; labels that no sample shows yet stand in a private name only."""
    for value in values:
        if hasattr(value, "collect") and not isinstance(value, CollectorRegistry):
            for family in value.collect():
                yield _named(family, _labels(value) or _labels(family))


def _labels(declared: Any) -> tuple[str, ...]:
    return tuple(getattr(declared, "_labelnames", ()))


def _named(family: Metric, labels: tuple[str, ...]) -> MetricName:
    name = f"{family.name}_total" if family.type == "counter" else family.name
    return MetricName(name, family.type, labels, family.documentation)


def _section(title: str, first: str, names: list[MetricName]) -> str:
    head = ["| metric | type | labels | unit | meaning |", "|---|---|---|---|---|"]
    return "\n".join([f"## {title}", "", first, "", *head, *map(_row, names), ""])


def _row(one: MetricName) -> str:
    labels = ", ".join(f"`{label}`" for label in one.labels)
    return "| " + " | ".join([f"`{one.name}`", one.kind, labels, one.unit, cell(one.text)]) + " |"
