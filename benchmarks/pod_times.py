"""When pods are created, released from their gates and bound, as a watch shows it on this machine's clock."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from kubernetes import client, watch

# The moments of a pod, in order.
CREATED, RELEASED, BOUND = "created", "released", "bound"


class PodTimes:
    """Moments of all pods of a namespace in seconds of the monotonic clock, by the job that a label names."""

    def __init__(self, labels: tuple[str, ...]) -> None:
        self._labels = labels
        self._moments: dict[str, dict[str, dict[str, float]]] = {}
        self._present: dict[str, set[str]] = {}
        self._changed = threading.Condition()
        self._broken: Exception | None = None

    def take(self, event: Mapping[str, Any], now: float) -> None:
        """Note one event of the watch."""
        pod = event["raw_object"]
        name, labels = pod["metadata"]["name"], pod["metadata"].get("labels") or {}
        job = next((labels[label] for label in self._labels if label in labels), "")
        with self._changed:
            present = self._present.setdefault(job, set())
            if event["type"] == "DELETED":
                present.discard(name)
            else:
                present.add(name)
                self._note(self._moments.setdefault(job, {}).setdefault(name, {}), pod["spec"], now)
            self._changed.notify_all()

    @staticmethod
    def _note(times: dict[str, float], spec: Mapping[str, Any], now: float) -> None:
        times.setdefault(CREATED, now)
        if not spec.get("schedulingGates"):
            times.setdefault(RELEASED, now)
        if spec.get("nodeName"):
            times.setdefault(BOUND, now)

    def end(self, error: Exception) -> None:
        """The watch broke: whoever waits is told."""
        with self._changed:
            self._broken = error
            self._changed.notify_all()

    def last(self, job: str, pods: int, moment: str) -> float | None:
        """When the last of that many pods of a job reached a moment; None while not all have."""
        times = [pod[moment] for pod in self._moments.get(job, {}).values() if moment in pod]
        return max(times) if len(times) == pods else None

    def wait_until_bound(self, job: str, pods: int, seconds: float) -> bool:
        return self._wait(lambda: self.last(job, pods, BOUND) is not None, seconds)

    def wait_until_gone(self, job: str, seconds: float) -> bool:
        return self._wait(lambda: not self._present.get(job), seconds)

    def _wait(self, reached: Callable[[], bool], seconds: float) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: reached() or self._broken is not None, seconds)
            if self._broken is not None and not reached():
                raise self._broken
            return reached()

    def seen_of(self, job: str) -> str:
        """For messages: which pods of a job reached what."""
        return "; ".join(f"{pod} {', '.join(times)}" for pod, times in self._moments.get(job, {}).items()) or "no pod"


@contextmanager
def watching(api: client.ApiClient, namespace: str, labels: tuple[str, ...]) -> Iterator[PodTimes]:
    """Follow the pods of a namespace in a thread of its own, from now on."""
    times, stream, core = PodTimes(labels), watch.Watch(), client.CoreV1Api(api)
    version = core.list_namespaced_pod(namespace).metadata.resource_version

    def follow() -> None:
        try:
            for event in stream.stream(core.list_namespaced_pod, namespace, resource_version=version):
                times.take(event, time.monotonic())
        except Exception as error:  # whatever ended the watch is for those who wait, not for this thread
            times.end(error)

    threading.Thread(target=follow, daemon=True).start()
    try:
        yield times
    finally:
        stream.stop()
