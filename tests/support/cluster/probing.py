"""What a kubelet does about a liveness probe, for programs that no kubelet runs."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tools.kube.components import answers
from tools.kube.parts import Pair
from tools.kube.session import ClusterSession


@contextmanager
def probed(cluster: ClusterSession, pair: Pair) -> Iterator[None]:
    """The chart's liveness probe of kube-scheduler is asked, and kube-scheduler ended whenever it has failed so often."""
    stop, probe = threading.Event(), liveness(cluster, "kube-scheduler")
    thread = threading.Thread(target=_ask, args=(cluster, pair, probe, stop), daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def liveness(cluster: ClusterSession, container: str) -> dict[str, Any]:
    """The liveness probe that the chart gives a container of a Deployment."""
    pods = [found["spec"]["template"]["spec"] for found in cluster.parts.chart if found["kind"] == "Deployment"]
    probe: dict[str, Any] = next(one["livenessProbe"] for pod in pods for one in pod["containers"] if one["name"] == container)
    return probe


def _ask(cluster: ClusterSession, pair: Pair, probe: dict[str, Any], stop: threading.Event) -> None:
    failed = 0
    while not stop.wait(probe["periodSeconds"]):
        failed = 0 if answers(f"http://127.0.0.1:{pair.health_port}{probe['httpGet']['path']}") else failed + 1
        if failed >= probe["failureThreshold"]:
            cluster.crash(pair.scheduler, signal.SIGTERM)
            failed = 0
