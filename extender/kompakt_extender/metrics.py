"""What Prometheus reads at /metrics."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector

from kompakt_extender.fragmentation import FragmentationCollector

_SHARES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.99, 1.0)
# Bounds follow what the verbs cost: a tenth of a millisecond for small clusters, milliseconds for 5,000 nodes.
_SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 2.0)


class ExtenderMetrics:
    """All figures of one process, in a registry of their own so that tests can make as many as they like."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.verb_seconds = Histogram(
            "kompakt_extender_verb_seconds",
            "Time to answer kube-scheduler, in seconds",
            ["verb"],
            buckets=_SECONDS,
            registry=self.registry,
        )
        # kube-scheduler swallows errors of prioritize at log level 5, so they must be counted here.
        self.verb_errors = Counter(
            "kompakt_extender_verb_errors", "Answers that carried an error", ["verb"], registry=self.registry
        )
        self.active = Gauge("kompakt_extender_active", "1 while this process decides", registry=self.registry)
        self.binds = Counter("kompakt_extender_binds", "Binds by outcome", ["outcome"], registry=self.registry)
        self.unknown_binds = Gauge(
            "kompakt_extender_unconfirmed_binds", "Reservations whose bind is not yet seen on the pod", registry=self.registry
        )
        self.gangs = Gauge("kompakt_planner_gangs", "Gangs by state", ["state"], registry=self.registry)
        self.gated_pods = Gauge(
            "kompakt_planner_gated_pods",
            "Pods of gangs of others that wait behind our scheduling gate, of gangs whose object the planner has written",
            registry=self.registry,
        )
        self.plans = Counter("kompakt_planner_plans", "Plans written", registry=self.registry)
        self.plans_overtaken = Counter(
            "kompakt_planner_plan_conflicts", "Plans given up because a place was gone by then", registry=self.registry
        )
        self.repairs = Counter(
            "kompakt_planner_repairs",
            "Transitions of a gang that its phase does not allow, an error in kompakt",
            ["transition"],
            registry=self.registry,
        )
        self.withdrawals = Counter("kompakt_planner_withdrawals", "Plans withdrawn", registry=self.registry)
        self.preemptions = Counter(
            "kompakt_planner_preemptions", "Running jobs asked to end for one of higher priority", registry=self.registry
        )
        self.plan_seconds = Histogram(
            "kompakt_planner_cycle_seconds", "Time of one planning cycle, in seconds", buckets=_SECONDS, registry=self.registry
        )
        self.relists = Counter("kompakt_extender_relists", "Lists read anew", ["resource"], registry=self.registry)
        self.rejections = Counter(
            "kompakt_extender_rejections",
            "Nodes refused in answers of filter, and binds refused, by reason; nodes that a plan does not name are not counted",
            ["verb", "reason"],
            registry=self.registry,
        )
        self.value_shares = Histogram(
            "kompakt_extender_bind_value_ratio",
            "Value of the GPU set chosen at bind, divided by the best value of that many GPUs on an empty node of the cluster",
            ["pattern"],
            buckets=_SHARES,
            registry=self.registry,
        )
        self.corrections = Counter(
            "kompakt_extender_ledger_corrections",
            "Bound pods whose GPUs were corrected afterwards, because the kubelet gave others than those chosen",
            registry=self.registry,
        )
        self.fleet = FragmentationCollector()
        self.registry.register(self.fleet)
        ProcessCollector(registry=self.registry)
