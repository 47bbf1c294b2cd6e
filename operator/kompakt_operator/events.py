"""Few Events of our own: one for each turn of a job that its owner wants to read in `kubectl describe`."""

import logging
from collections.abc import Iterator
from time import time
from typing import Any, Final

from kompakt_client.errors import ApiError
from kompakt_core import contract
from kompakt_core.contract import timestamps
from kompakt_core.contract.preempt_request import PreemptRequest
from kompakt_core.job.conditions import Type
from kompakt_core.job.pods import Cause
from kompakt_core.job.status import JobStatus, read_status
from kompakt_operator.api import OperatorApi, core_path

Object = dict[str, Any]
WARNINGS: Final = frozenset({Type.FAILED, Type.STALLED})
TOLD: Final = (Type.COMPLETE, Type.FAILED, Type.STALLED, Type.SUSPENDED)
log = logging.getLogger(__name__)


def transitions(before: Object, after: Object) -> Iterator[tuple[str, str, str]]:
    """Type, reason and message of what happened between two states of a job object."""
    old, new = read_status(before), read_status(after)
    if new.attempt > old.attempt:
        running = new.conditions.get(Type.RUNNING)
        why = running.message if running is not None and new.attempt > 1 else ""
        yield ("Warning" if why else "Normal"), "AttemptStarted", f"attempt {new.attempt}{': ' + why if why else ''}"
        if (whom := _preempted(old, new)) is not None:
            yield "Warning", "Preempted", f"attempt {old.attempt} ends {whom.message}"
    for type_ in TOLD:
        condition = new.conditions.get(type_)
        if condition is not None and condition.true and not old.holds(type_):
            yield ("Warning" if type_ in WARNINGS else "Normal"), condition.reason, condition.message or str(type_)


def _preempted(old: JobStatus, new: JobStatus) -> PreemptRequest | None:
    """For whom the attempt ended, if it ended for another job."""
    last = new.last_restart
    return old.preempt if new.attempt > old.attempt and last is not None and last.reason == Cause.PREEMPTED else None


def turns_of_others(before: Object, after: Object) -> Iterator[tuple[Object, str, str]]:
    """What between two states of a job object happened for another job: that one's metadata, reason and message."""
    whom = _preempted(read_status(before), read_status(after))
    if whom is not None:
        meta = after["metadata"]
        other = {"namespace": whom.namespace, "name": whom.name, "uid": whom.uid}
        yield other, "PreemptedOther", f"{meta['namespace']}/{meta['name']} of priority {whom.own_priority} ends for this job"


async def announce(api: OperatorApi, before: Object, after: Object) -> None:
    """Post them; an Event that cannot be posted is no reason to stop."""
    own = [(after["metadata"], kind, reason, message) for kind, reason, message in transitions(before, after)]
    others = [(meta, "Normal", reason, message) for meta, reason, message in turns_of_others(before, after)]
    for meta, kind, reason, message in own + others:
        try:
            await api.create(core_path("events", meta["namespace"]), _event(meta, kind, reason, message))
        except ApiError as problem:
            log.warning("no Event %s for %s/%s: %s", reason, meta["namespace"], meta["name"], problem)


def _event(meta: Object, kind: str, reason: str, message: str) -> Object:
    now = timestamps.encode(time())
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": f"{meta['name']}.", "namespace": meta["namespace"]},
        "involvedObject": {
            "apiVersion": contract.API_VERSION,
            "kind": contract.JOB_KIND,
            **{key: meta[key] for key in ("name", "namespace", "uid")},
        },
        "type": kind,
        "reason": reason,
        "message": message[:1024],
        "source": {"component": contract.OPERATOR_MANAGER},
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }
