"""What Prometheus reads at /metrics."""

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from kompakt_device_plugin.report import NodeReport, conditions_of, counted

# A hit costs tenths of a millisecond; a miss may ask the API server for 200 ms and search for 100 more.
_SECONDS: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0)
_PREFIX: Final = "kompakt_device_plugin"


class PluginMetrics:
    """All figures of one process, in a registry of their own so that tests can make as many as they like."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"{_PREFIX}_{name}", text, labels, registry=self.registry)

        self.registrations = counter("registrations", "Registrations with kubelet")
        self.allocations = counter("allocations", "Sets handed over to containers")
        self.rejected_allocations = counter(
            "rejected_allocations", "Sets not handed over since a process still used, or may have used, a GPU of them"
        )
        self.late_writes = counter("late_writes", "Sets handed over before the write-ahead file said so: its disk was busy")
        self.preferred = counter(
            "preferred",
            "Answers to kubelet's question which GPUs to take; hit: the set written on a pod, late: the same after asking the "
            "API server, miss: the best free set",
            "outcome",
        )
        self.corrected = counter("corrected_pods", "Pods that held another set than was written on them")
        self.reported = counter("reported_pods", "Pods that hold GPUs although no usable set was written on them")
        self.preferred_seconds = Histogram(
            f"{_PREFIX}_preferred_allocation_seconds",
            "Time to answer kubelet's question which GPUs to take",
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.gpus = Gauge(f"{_PREFIX}_gpus", "GPUs of the node by state", ["state"], registry=self.registry)
        self.conditions = Gauge(
            f"{_PREFIX}_condition",
            "Conditions of the node's GPUTopology: 1 where it is True, 0 where it is False or Unknown",
            ["type"],
            registry=self.registry,
        )

    def show(self, report: NodeReport) -> None:
        """The node's GPUs and conditions as they were reported last."""
        for state, number in counted(report).items():
            self.gpus.labels(state).set(number)
        for one in conditions_of(report):
            self.conditions.labels(one.type).set(one.status is True)

    def value(self, name: str, **labels: str) -> float:
        """One figure by the end of its name (allocations_total); 0 where it was never touched."""
        return self.registry.get_sample_value(f"{_PREFIX}_{name}", labels) or 0.0
