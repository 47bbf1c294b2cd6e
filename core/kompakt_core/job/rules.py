"""Rules of a TrainingJob about names and about several fields: as CEL for the API server, as code for the parser."""

import re
from typing import TYPE_CHECKING, Final

from kompakt_core.job import rejections
from kompakt_core.job.choices import MAX_JOB_NAME, MAX_ROLE_NAME, MAX_WORKERS, CompressionMode, EdgeScope, Injection
from kompakt_core.schema.meta import Broken, ValidationRule, unless
from kompakt_core.schema.words import shown

if TYPE_CHECKING:
    from kompakt_core.job.model import TrainingJobSpec

_LABEL: Final = "[a-z]([-a-z0-9]*[a-z0-9])?"  # as a Service's name (RFC 1035)
_IS_LABEL: Final = re.compile(_LABEL, re.ASCII)


def _name(cel: str, longest: int, sentence: str) -> ValidationRule:
    def broken(text: str) -> Broken:
        return None if len(text) <= longest and _IS_LABEL.fullmatch(text) else ("", f"; got {shown(text)}")

    return ValidationRule(f"size({cel}) <= {longest} && {cel}.matches('^{_LABEL}$')", sentence, broken)


JOB_NAME_RULE: Final = _name("self.metadata.name", MAX_JOB_NAME, rejections.JOB_NAME)
ROLE_NAME_RULE: Final = _name("self", MAX_ROLE_NAME, rejections.ROLE_NAME)

_FREE: Final = "oldSelf.suspend || self.suspend || "
# Equal as far as the pods depend on it; an absent block equals an absent block only.
_WHILE_RUNNING: Final = "{0} can change only while suspended, or in the write that suspends or resumes the job"
_EQUAL: Final = "has(self.{0}) == has(oldSelf.{0}) && (!has(self.{0}) || self.{0} == oldSelf.{0})"
# 300 where a job says nothing: `run_policy.Preemption`.
_MIN_RUNTIME: Final = "{0}.?runPolicy.?preemption.?minRuntimeSeconds.orValue(300)"
IMMUTABLE: Final = (
    ValidationRule("self.managedBy == oldSelf.managedBy", "managedBy cannot change"),
    ValidationRule(f"{_FREE}self.roles == oldSelf.roles", _WHILE_RUNNING.format("roles")),
    *(
        ValidationRule(_FREE + _EQUAL.format(name), _WHILE_RUNNING.format(name))
        for name in ("communication", "activationCompression")
    ),
    ValidationRule(
        f"{_FREE}{_MIN_RUNTIME.format('self')} <= {_MIN_RUNTIME.format('oldSelf')}",
        "runPolicy.preemption.minRuntimeSeconds can grow only while suspended, or in the write that suspends or resumes the job",
    ),
)


def _outside_pod(spec: "TrainingJobSpec") -> Broken:
    sizes = [role.gpus_per_replica for role in spec.roles if role.gpus_per_replica]
    return _outside(spec, EdgeScope.POD, min(sizes)) if sizes else None


def _outside_gang(spec: "TrainingJobSpec") -> Broken:
    return _outside(spec, EdgeScope.GANG, sum(role.replicas * role.gpus_per_replica for role in spec.roles))


def _outside(spec: "TrainingJobSpec", scope: EdgeScope, size: int) -> Broken:
    own = spec.communication.custom_edges
    if own is None or own.scope is not scope or all(max(edge.start, edge.end) < size for edge in own.edges):
        return None
    return "communication.customEdges.edges", ""


def _unknown_role(spec: "TrainingJobSpec") -> Broken:
    roles = [role.name for role in spec.roles]
    for i, name in enumerate(spec.run_policy.success.roles):
        if name not in roles:
            return f"runPolicy.successPolicy.targetRoles[{i}]", f": {shown(name)}; it has {', '.join(roles)}"
    return None


_EDGES: Final = "!has(self.communication) || !has(self.communication.customEdges) || "
_RANKS: Final = "self.communication.customEdges.edges.all(e, e.from < {0} && e.to < {0})"
_GANG: Final = "self.roles.map(r, r.replicas * r.gpusPerReplica).sum()"
_POD: Final = "self.roles.filter(r, r.gpusPerReplica > 0).all(r, " + _RANKS.format("r.gpusPerReplica") + ")"
_TARGETS: Final = "self.runPolicy.successPolicy.targetRoles.all(t, self.roles.exists(r, r.name == t))"
ACROSS: Final = (
    ValidationRule(
        "self.roles.exists(r, r.gpusPerReplica > 0)",
        rejections.NO_GPU_ROLE,
        unless(lambda spec: any(role.gpus_per_replica for role in spec.roles), "roles"),
    ),
    ValidationRule(
        f"self.roles.map(r, r.replicas).sum() <= {MAX_WORKERS}",
        rejections.WORKERS,
        unless(lambda spec: sum(role.replicas for role in spec.roles) <= MAX_WORKERS, "roles"),
    ),
    ValidationRule(
        "self.injection != 'Never' || !has(self.activationCompression) || self.activationCompression.mode == 'None'",
        rejections.INJECTION,
        unless(lambda spec: spec.injection is not Injection.NEVER or spec.compression.mode is CompressionMode.NONE, "injection"),
    ),
    ValidationRule(f"{_EDGES}self.communication.customEdges.scope != 'Pod' || {_POD}", rejections.EDGE_RANK_POD, _outside_pod),
    ValidationRule(
        f"{_EDGES}self.communication.customEdges.scope != 'Gang' || {_RANKS.format(_GANG)}",
        rejections.EDGE_RANK_GANG,
        _outside_gang,
    ),
    ValidationRule(
        "!has(self.runPolicy) || !has(self.runPolicy.successPolicy) || "
        f"!has(self.runPolicy.successPolicy.targetRoles) || {_TARGETS}",
        rejections.TARGET_ROLES,
        _unknown_role,
    ),
)
