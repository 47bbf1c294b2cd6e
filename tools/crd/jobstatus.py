"""The status of a TrainingJob: the operator's part and the planner's part (`scheduling`)."""

from dataclasses import fields

from kompakt_core.job import measured, model
from kompakt_core.job.batches import BatchState
from kompakt_core.job.phases import Phase
from kompakt_core.profile.stalls import Stalls
from tools.crd.schema import Schema, atomic, conditions, flag, mapped, moment, obj, text, whole, word

NOT_SEEN = -1
LOWEST = -(1 << 31)  # priorities are int32
PHASES = tuple(phase for phase in Phase if phase)
UUIDS = atomic(text(), maxItems=model.MAX_GPUS)


def status() -> Schema:
    """Schema of the whole status."""
    return obj(
        {
            "observedGeneration": whole(NOT_SEEN),
            "phase": word(PHASES),
            "attempt": whole(),
            "restarts": whole(),
            "disruptions": whole(),
            "lastRestart": _last_restart(),
            "startTime": moment(),
            "completionTime": moment(),
            "conditions": conditions(),
            "gpus": whole(),
            "nodes": text(),
            "roles": mapped(_role(), "name", maxItems=model.MAX_ROLES),
            "scheduling": _scheduling(),
            "compression": _compression(),
            "batch": _batch(),
            "progress": _progress(),
            "profile": _profile(),
        },
        # Without it kstatus (helm --wait, Flux, Argo CD) takes a job that nobody has looked at yet for finished.
        default={"observedGeneration": NOT_SEEN},
    )


def _last_restart() -> Schema:
    return obj({"time": moment(), "attempt": whole(), "reason": text(), "message": text(), "delaySeconds": whole()})


def _role() -> Schema:
    pod = obj({"name": text(), "node": text(), "gpus": UUIDS}, required=("name",))
    counts = {name: whole() for name in ("active", "ready", "succeeded", "failed")}
    return obj({"name": text(), **counts, "pods": mapped(pod, "name", maxItems=model.MAX_REPLICAS)}, required=("name",))


def _scheduling() -> Schema:
    seat = obj(
        {"name": text(), "uid": text(), "node": text(), "gpus": UUIDS, "value": whole(), "rank": whole()},
        required=("name",),
    )
    plan = obj(
        {
            "level": word(model.LevelName),
            "value": whole(),
            "ideal": whole(),
            "releasedAt": moment(),
            "pods": atomic(seat, maxItems=model.MAX_ROLES * model.MAX_REPLICAS),
        }
    )
    excluded = obj({"node": text(), "until": moment(), "reason": text()}, required=("node",))
    reserved = obj({"node": text(), "gpus": whole(), "uuids": UUIDS}, required=("node",))
    whom = {"namespace": text(), "name": text(), "uid": text()}
    victim = obj({**whom, "attempt": whole(), "priority": whole(LOWEST)}, required=("uid",))
    preempt = obj(
        {
            "attempt": whole(),
            "requestedAt": moment(),
            "for": obj({**whom, "priority": whole(LOWEST)}),
            "priority": whole(LOWEST),
            "message": text(),
        }
    )
    return obj(
        {
            "attempt": whole(),
            "state": word(("Waiting", "Reserved", "Released", "Withdrawn")),
            "reason": text(),
            "message": text(),
            "waitingSince": moment(),
            "placeableSince": moment(),
            "waitsFor": word(model.LevelName),
            "until": moment(),
            "overtaken": whole(),
            "reserved": atomic(reserved, maxItems=model.MAX_ROLES * model.MAX_REPLICAS),
            "victims": atomic(victim, maxItems=5000),
            "victimsSince": moment(),
            "excludedNodes": atomic(excluded, maxItems=5000),
            "plan": plan,
            "preempt": preempt,
        }
    )


def _compression() -> Schema:
    return obj(
        {
            "attempt": whole(description="Which attempt the figures are of: until a new one is heard of, the one before."),
            "active": flag(),
            "complete": flag(
                description="True: the sum of what all workers left at their end. False while the job runs, when these are the "
                "figures of rank 0's pod so far, and afterwards if a worker left no last word."
            ),
            "reason": text(),
            "mode": text(),
            "target": text(),
            "plainBytes": whole(),
            "savedBytes": whole(),
            "ratio": text(),
            "denominator": text(),
            "overheadPercent": text(),
            "overheadDenominator": text(),
            "steps": whole(),
            "ranks": whole(description="Processes whose figures are summed."),
            "violations": whole(),
            "batch": whole(),
            "suggestedBatch": whole(),
            "raw": {"type": "object", "additionalProperties": whole()},
            "offloadedBytes": whole(description="What waited in host memory for its backward pass, summed over steps."),
            "offloadReasons": {"type": "object", "additionalProperties": whole()},
        }
    )


def _batch() -> Schema:
    return obj({"state": word(BatchState), "size": whole(1), "base": whole(1), "spec": text(), "rounds": whole()})


def _profile() -> Schema:
    stall = obj({"seconds": text(), "percent": text()})
    return obj(
        {
            "source": word((measured.STEPS, measured.BEFOREHAND)),
            "stepSeconds": text(),
            "gradientBytes": whole(),
            "ranks": whole(),
            "level": word(model.LevelName),
            "communication": text(),
            "sensitivity": word(model.Sensitivity),
            "stalls": obj({field.name: stall for field in fields(Stalls)}),
        }
    )


def _progress() -> Schema:
    numbers = {"step": whole(), "total": whole(), "loss": text(), "samplesPerSecond": text(), "eta": moment()}
    return obj({**numbers, "remainingSeconds": whole()})
