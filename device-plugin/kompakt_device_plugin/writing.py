"""Brings what a node's pods really hold into the cluster: `status.held` first, then the annotations, then an Event."""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from kompakt_client.errors import Conflict, Forbidden, NotFound, explained
from kompakt_core import contract
from kompakt_core.ids import GpuUuid, PodUid
from kompakt_device_plugin.api import PluginApi, pod_path
from kompakt_device_plugin.event_recorder import EventRecorder
from kompakt_device_plugin.pods import NodePod
from kompakt_device_plugin.reconcile import Correction, PodKey, annotations_of, corrections, event_of
from kompakt_device_plugin.report import NodeReport

log = logging.getLogger(__name__)
_SHOWN: Final = 300  # characters of an annotation in a log line
_MAX_TOLD: Final = 4096


class PodCorrector:
    """Writes corrections; tells of each only once."""

    def __init__(
        self, api: PluginApi, count: Callable[[NodePod], None] = lambda pod: None, events: EventRecorder | None = None
    ) -> None:
        """`count` is told of every pod that is corrected; `events` are made together with others' where it is given."""
        self._api, self._count, self._events = api, count, events or EventRecorder(api)
        self._told: dict[PodUid, tuple[GpuUuid, ...]] = {}

    def correct(self, taken: Mapping[PodKey, frozenset[GpuUuid]], pods: Sequence[NodePod], report: NodeReport) -> None:
        """Call only after `report`, which says the same in status.held, is written. Raises an ApiError."""
        for uid in list(self._told)[:-_MAX_TOLD]:
            self._told.pop(uid, None)
        for correction in corrections(taken, pods, report.graph):
            self._write(correction)
        self._events.send()

    def _write(self, correction: Correction) -> None:
        pod = correction.pod
        try:
            self._api.apply(pod_path(*pod.key), annotations_of(correction), manager=contract.PLUGIN_MANAGER)
        except (Forbidden, NotFound, Conflict) as error:
            # Gone, or another pod of that name by now: the watch will say so, and status.held has it meanwhile.
            log.info("pod %s/%s cannot be corrected: %s", *pod.key, explained(error))
            return
        if correction.gpus and self._told.get(pod.uid) != correction.gpus:
            self._tell(correction)

    def _tell(self, correction: Correction) -> None:
        pod = correction.pod
        self._told[pod.uid] = correction.gpus
        self._count(pod)
        log.warning(
            "pod %s/%s holds %s; written on it was %s%s",
            *pod.key,
            ", ".join(correction.gpus),
            pod.written[:_SHOWN] or "nothing",
            f" ({correction.flaw})" if correction.flaw else "",
        )
        self._events.owe(event_of(correction))
