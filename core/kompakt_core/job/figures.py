"""status.compression and its conditions: while a job runs what rank 0's pod says, at the end the sum of all."""

from collections.abc import Iterable, Mapping
from typing import Any

from kompakt_core.contract import SWITCH_FILE, SWITCHED_OFF
from kompakt_core.contract.conditions import Condition, ConditionReason, Type, condition
from kompakt_core.job.model import CompressionMode, TrainingJob
from kompakt_core.job.pods import WorkerPod
from kompakt_core.job.reports import count, merged, read_report
from kompakt_core.job.status import JobStatus


def compression_of(job: TrainingJob, status: JobStatus, pods: Iterable[WorkerPod]) -> dict[str, Any]:
    """status.compression of the status's attempt; empty while nothing is known of it.

    Its workers' last words count; of rank 0's pod, until it has left any, what it said while it ran. Figures of more ranks than
    are known of now stay as they stand: pods go with what they left, and a new operator has heard nothing yet.
    """
    own = [pod for pod in pods if pod.attempt == status.attempt]
    left = [(pod.uid, report) for pod in own for message in pod.reports if (report := read_report(message)) is not None]
    found = [report for _, report in left]
    if (heard := status.heard) is not None and heard.pod not in {uid for uid, _ in left}:
        found = [{**heard.report, "complete": False}, *found]
    workers = sum(role.replicas for role in job.roles if role.gpus_per_replica)
    known = {"attempt": status.attempt, **merged(found, workers)} if found else {}
    written = status.written.get("compression") or {}
    stays = written.get("attempt") == status.attempt and (not known or count(written, "ranks") > known["ranks"])
    return dict(written) if stays else known


def compression_to_show(job: TrainingJob, before: JobStatus, after: JobStatus, pods: Iterable[WorkerPod]) -> dict[str, Any]:
    """The same, but until something is heard of a new attempt the figures of the one before stay."""
    return compression_of(job, after, pods) or compression_of(job, before, pods) or dict(before.written.get("compression") or {})


def compression_condition(job: TrainingJob, found: Mapping[str, Any], finished: bool, skipped: str = "") -> Condition | None:
    """CompressionActive; None for a job that asks for no compression and whose start-up hook was not left out."""
    if job.compression.mode is CompressionMode.NONE:
        return condition(Type.COMPRESSION_ACTIVE, False, ConditionReason.INJECTION_SKIPPED, skipped) if skipped else None
    if found:
        return condition(Type.COMPRESSION_ACTIVE, found["active"], _reason_word(found["reason"]), _told(found, finished))
    if finished:
        return condition(
            Type.COMPRESSION_ACTIVE, False, ConditionReason.NO_REPORT, "no worker left a report of the start-up hook"
        )
    return condition(Type.COMPRESSION_ACTIVE, None, ConditionReason.NO_REPORT_YET, "rank 0's pod has not said anything yet")


def with_compression(
    job: TrainingJob, after: JobStatus, found: Mapping[str, Any], finished: bool, skipped: str = ""
) -> JobStatus:
    """The status with the conditions that tell of compression."""
    told = (compression_condition(job, found, finished, skipped), _budget_condition(job, after, found))
    return after.with_conditions(*(one for one in told if one is not None))


def _budget_condition(job: TrainingJob, after: JobStatus, found: Mapping[str, Any]) -> Condition | None:
    """BudgetNotReached; None while no plan was made, and where nobody ever asked for one."""
    if not job.compression.memory_budget:
        known = Type.BUDGET_NOT_REACHED in after.conditions
        return condition(Type.BUDGET_NOT_REACHED, False, ConditionReason.NO_BUDGET) if known else None
    if budget := found.get("memoryBudget"):
        took = f"a step takes {budget['peakBytes']} bytes, of {budget['bytes']} of memoryBudget"
        if budget["peakBytes"] <= budget["bytes"]:
            return condition(Type.BUDGET_NOT_REACHED, False, ConditionReason.WITHIN_BUDGET, took)
        words = f"{took}, with all packed; a budget of {budget['leastBytes']} bytes is sure to work"
        return condition(Type.BUDGET_NOT_REACHED, True, ConditionReason.ALL_PACKED, words)
    return None


def _reason_word(reason: str) -> str:
    """A report's reason as a condition allows it: letters and digits, beginning with a letter."""
    word = "".join(c for c in reason if c.isascii() and c.isalnum())
    return word if word[:1].isalpha() else "Reported"


def _told(found: Mapping[str, Any], finished: bool) -> str:
    if found["reason"] != SWITCHED_OFF:
        return _sizes(found, finished)
    file = f"a pod has the file {SWITCH_FILE}, which switches compression off"
    return f"{file}; {_sizes(found, finished)}" if found["plainBytes"] else f"{file}; nothing was compressed"


def _sizes(found: Mapping[str, Any], finished: bool) -> str:
    sizes = f"{found['savedBytes']} bytes kept in place of {found['plainBytes']}"
    if not found["complete"]:
        ranks = f"{found['ranks']} rank{'s' if found['ranks'] != 1 else ''}"
        sizes = f"as last heard, since not every process ended by itself: {sizes}" if finished else f"so far, of {ranks}: {sizes}"
    kept = f"{sizes}: ratio {found['ratio']} of {found.get('denominator', 'unknown')}" if "ratio" in found else sizes
    return kept + _held(found)


def _held(found: Mapping[str, Any]) -> str:
    """The peak, which decides whether a training fits; what is kept is less than that."""
    if "peakBytes" not in found:
        return ""
    plain = f" in place of {found['plainPeakBytes']}" if "plainPeakBytes" in found else ""
    return f"; at most {found['peakBytes']} bytes held at a time{plain}"
