"""Pods of gangs of others that wait behind our gate, counted as they come and go.

A scrape is answered on the loop that kube-scheduler waits for: it must not go through the pods of all gangs.
"""

from collections.abc import Container

from kompakt_core.ids import PodUid
from kompakt_extender.views import PodView


class GatedByGang:
    """Follows pods, and keeps of each gang those that wait."""

    def __init__(self) -> None:
        self._waiting: dict[str, set[PodUid]] = {}  # by the gang's uid; of gangs of which some wait

    def set_pod(self, pod: PodView) -> None:
        if pod.waits_gated:
            self._waiting.setdefault(pod.job_uid, set()).add(pod.uid)
        else:
            self.remove_pod(pod)

    def remove_pod(self, pod: PodView) -> None:
        waiting = self._waiting.get(pod.job_uid)
        if waiting is not None:
            waiting.discard(pod.uid)
            if not waiting:
                del self._waiting[pod.job_uid]

    def count(self, gangs: Container[str]) -> int:
        """How many wait in these gangs."""
        return sum(len(pods) for uid, pods in self._waiting.items() if uid in gangs)
