"""Which batch a job with batchSize Raise trains with: its first attempts measure, those after them have what was found. Pure."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

from kompakt_core.job.model import MAX_BATCH, BatchSize, NonlinearInputs, TrainingJob
from kompakt_core.job.pods import WorkerPod
from kompakt_core.job.reports import count, read_report
from kompakt_core.schema.meta import plain

MEASURED: Final = "BatchMeasured"  # why the attempt that measured ended
# What any batch takes is counted as if it grew with the batch, so the first answer is low: it is measured as well, until the
# next answer is not that much larger (in fractions of four), or so often.
NEAR: Final = (5, 4)
MOST_ROUNDS: Final = 5
NONE_NAMED: Final = "not every worker could name a larger one"


class BatchState(StrEnum):
    MEASURING = "Measuring"  # a few steps run with baseBatchSize, or with what was found so far, then a new attempt begins
    RAISED = "Raised"
    KEPT = "Kept"  # measured; nothing larger fits


@dataclass(frozen=True, slots=True)
class Batch:
    """status.batch. `size` is what KOMPAKT_BATCH_SIZE says; `spec` tells what it was measured with (see `fingerprint`), `rounds`
    how many attempts have measured.
    """

    state: BatchState
    size: int
    base: int
    spec: str
    rounds: int = 0

    def written(self) -> dict[str, Any]:
        """As it stands in the status."""
        return {"state": str(self.state), "size": self.size, "base": self.base, "spec": self.spec, "rounds": self.rounds}


def read_batch(value: object) -> Batch | None:
    """status.batch; None where it is missing or malformed."""
    if not isinstance(value, Mapping) or value.get("state") not in set(BatchState):
        return None
    sizes = [value.get("size"), value.get("base")]
    if not all(type(size) is int and 1 <= size <= MAX_BATCH for size in sizes):
        return None
    rounds = value.get("rounds")
    known = rounds if type(rounds) is int and rounds > 0 else 0
    return Batch(BatchState(value["state"]), value["size"], value["base"], str(value.get("spec", "")), known)


def fingerprint(job: TrainingJob) -> str:
    """The same as long as nothing changes on which the measured batch depends: roles and compression."""
    # What the spec leaves open is as an operator had it that did not know these fields: an upgrade is no change.
    open_ = {"nonlinear_inputs": NonlinearInputs.KEEP}
    compression = open_ | {name: value for name, value in plain(job.compression).items() if value not in (None, "")}
    parts = [[plain(role) for role in job.roles], compression]
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()[:16]


def current(job: TrainingJob, known: Batch | None) -> Batch | None:
    """What the next attempt's pods get: what is known, if it was measured with the spec as it is; else the base.

    None where nothing is raised.
    """
    if job.compression.batch_size is not BatchSize.RAISE:
        return None
    spec, base = fingerprint(job), job.compression.base_batch
    return known if known is not None and known.spec == spec else Batch(BatchState.MEASURING, base, base, spec)


def measures(pod: WorkerPod) -> bool:
    """Whether this pod ended because it had measured enough: that is no success of the training."""
    return any(report.get("batchMeasured") is True for report in _reports(pod))


def measured(job: TrainingJob, batch: Batch | None, pods: Sequence[WorkerPod]) -> Batch | None:
    """What follows when all workers that train have ended well, one of them at least because it had measured; else None.

    The batch grows in the ratio in which the samples of a forward pass may grow on the worker that has the least room: so
    it does not matter whether KOMPAKT_BATCH_SIZE means the samples of one rank or of all. It never falls below what was
    measured, which was seen to fit, nor rises above maxBatchSize. Where it grows much it is measured again.
    """
    if batch is None or batch.state is not BatchState.MEASURING:
        return None
    policy = job.run_policy.success
    roles = [r for r in job.roles if r.gpus_per_replica and (not policy.roles or r.name in policy.roles)]
    done = [pod for pod in pods if pod.succeeded and pod.role in {role.name for role in roles}]
    if len(done) < sum(role.replicas for role in roles) or not any(map(measures, done)):
        return None
    most = job.compression.max_batch or MAX_BATCH
    size = max(min(min(_grown(batch.size, pod) for pod in done), most), batch.size)
    far = size * NEAR[1] > batch.size * NEAR[0] and size < most and batch.rounds + 1 < MOST_ROUNDS
    return Batch(BatchState.MEASURING if far else _settled(size, batch.base), size, batch.base, batch.spec, batch.rounds + 1)


def after_failure(batch: Batch | None) -> Batch | None:
    """What an attempt gets after one that failed: a larger batch than the base that was only being tried is given up."""
    if batch is None or batch.state is not BatchState.MEASURING or batch.size == batch.base:
        return batch
    return replace(batch, state=BatchState.KEPT, size=batch.base)


def _settled(size: int, base: int) -> BatchState:
    return BatchState.RAISED if size > base else BatchState.KEPT


def words(batch: Batch) -> str:
    """Why the attempt that measured ended, for people."""
    if batch.state is BatchState.MEASURING:
        return f"measured: a batch of {batch.size} fits; the next attempt measures with that"
    if batch.state is BatchState.RAISED:
        return f"measured: in place of a batch of {batch.base} one of {batch.size} fits; the next attempt has it"
    return f"measured: no batch above {batch.base} fits, or {NONE_NAMED}; the next attempt keeps it"


def _grown(size: int, pod: WorkerPod) -> int:
    """The batch as this pod's samples may grow; 0 where it names none."""
    found = [(count(report, "suggestedBatch"), count(report, "batch")) for report in _reports(pod)]
    return min((min(size * suggested // seen, MAX_BATCH) if seen else 0 for suggested, seen in found), default=0)


def _reports(pod: WorkerPod) -> list[dict[str, Any]]:
    return [report for message in pod.reports if (report := read_report(message)) is not None]
