"""Where a TrainingJob stands, from its status; why it does not run: what operator and planner say, the strongest word first."""

from typing import Any

from kompakt_core.contract.conditions import Condition, ConditionReason, Type, read_conditions
from kompakt_core.job.phases import Phase


def told(job: dict[str, Any]) -> str:
    """Where a job stands, in one line."""
    status = job.get("status") or {}
    phase = status.get("phase") or "not seen by the operator yet"
    ratio = (status.get("compression") or {}).get("ratio")
    more = f"activations {ratio} times smaller" if phase == Phase.SUCCEEDED and ratio else why(status)
    attempt = f", attempt {status['attempt']}" if status.get("attempt", 0) > 1 else ""
    return f"{job['metadata']['name']}: {phase}{attempt}{f' ({more})' if more else ''}"


def why(status: dict[str, Any]) -> str:
    """One sentence; empty while all is well."""
    conditions, phase = read_conditions(status.get("conditions")), status.get("phase") or Phase.NEW
    for type_ in (Type.FAILED, Type.STALLED):
        if (found := conditions.get(type_)) is not None and found.true:
            return f"{found.reason}: {found.message}"
    if phase == Phase.RESTARTING:
        return str((status.get("lastRestart") or {}).get("message", ""))
    if phase not in (Phase.NEW, Phase.PENDING, Phase.STARTING):
        return ""
    reconciling = conditions.get(Type.RECONCILING)
    if reconciling is not None and reconciling.reason == ConditionReason.WAITING_FOR_QUOTA:
        return _reconciling(reconciling)  # what the planner said is of an earlier attempt
    waits = str((status.get("scheduling") or {}).get("message", "")) if phase != Phase.STARTING else ""
    if waits and reconciling is not None and reconciling.reason == ConditionReason.WAITING_FOR_NODES:
        return f"{waits}; {_reconciling(reconciling)}"
    return waits or _reconciling(reconciling)


def _reconciling(found: Condition | None) -> str:
    """A quota that is in the way, or a container that cannot start."""
    return found.message if found is not None and found.true else ""
