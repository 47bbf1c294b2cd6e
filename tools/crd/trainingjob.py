"""The TrainingJob resource: schema, defaults, CEL rules, printer columns."""

from itertools import pairwise

from kompakt_core import contract
from kompakt_core.job import model, refusals
from kompakt_core.patterns.names import Pattern
from tools.crd.jobstatus import status
from tools.crd.schema import Schema, atomic, column, crd, flag, mapped, obj, quantity, rule, ruled, text, whole, word

LABEL = "^[a-z]([-a-z0-9]*[a-z0-9])?$"
# Equal as far as the pods depend on it; an absent block equals an absent block only.
WHILE_RUNNING = "{0} can change only while suspended, or in the write that suspends or resumes the job"


def definition(template: Schema) -> Schema:
    """The whole CustomResourceDefinition; `template` is the pod template's schema."""
    names = {
        "kind": contract.JOB_KIND,
        "listKind": f"{contract.JOB_KIND}List",
        "plural": contract.JOB_PLURAL,
        "singular": "trainingjob",
        "shortNames": ["tj"],
        "categories": ["all", "kompakt"],
    }
    schema = obj(
        {"apiVersion": text(), "kind": text(), "metadata": {"type": "object"}, "spec": _spec(template), "status": status()},
        required=("spec",),
    )
    name_rule = rule(
        f"size(self.metadata.name) <= {model.MAX_JOB_NAME} && self.metadata.name.matches('{LABEL}')", refusals.JOB_NAME
    )
    return crd(names, "Namespaced", ruled(schema, name_rule), _columns())


def _columns() -> list[Schema]:
    return [
        column("Phase", ".status.phase"),
        column("Level", ".status.scheduling.plan.level"),
        column("GPUs", ".status.gpus", "integer"),
        column("Ratio", ".status.compression.ratio"),
        column("Restarts", ".status.restarts", "integer"),
        column("Attempt", ".status.attempt", "integer", priority=1),
        column("Overhead %", ".status.compression.overheadPercent", priority=1),
        column("Batch", ".status.batch.size", "integer", priority=1),
        column("MB/s", ".status.scheduling.plan.value", "integer", priority=1),
        column("Nodes", ".status.nodes", priority=1),
        column("Placed", '.status.conditions[?(@.type=="Placed")].reason', priority=1),
        column("Last restart", ".status.lastRestart.reason", priority=1),
        column("Age", ".metadata.creationTimestamp", "date"),
    ]


def _spec(template: Schema) -> Schema:
    schema = obj(
        {
            "suspend": flag(default=False),
            "managedBy": text(default=contract.MANAGED_BY, maxLength=63),
            "roles": _roles(template),
            "communication": _communication(),
            "placement": _placement(),
            "activationCompression": _compression(),
            "injection": word(model.Injection, model.Injection.DEFAULT),
            "runPolicy": _run_policy(),
            "priorityClassName": text(maxLength=253),
            "sharedMemory": quantity(),
        },
        required=("roles",),
    )
    return ruled(schema, *_immutable(), *_across())


def _immutable() -> list[Schema]:
    free = "oldSelf.suspend || self.suspend || "
    return [
        rule("self.managedBy == oldSelf.managedBy", "managedBy cannot change"),
        rule(f"{free}self.roles == oldSelf.roles", WHILE_RUNNING.format("roles")),
        *(
            rule(
                f"{free}has(self.{name}) == has(oldSelf.{name}) && (!has(self.{name}) || self.{name} == oldSelf.{name})",
                WHILE_RUNNING.format(name),
            )
            for name in ("communication", "activationCompression")
        ),
    ]


def _across() -> list[Schema]:
    """Rules between fields of the spec."""
    edges = "!has(self.communication) || !has(self.communication.customEdges) || "
    ranks = "self.communication.customEdges.edges.all(e, e.from < {0} && e.to < {0})"
    gang = "self.roles.map(r, r.replicas * r.gpusPerReplica).sum()"
    pod = "self.roles.filter(r, r.gpusPerReplica > 0).all(r, " + ranks.format("r.gpusPerReplica") + ")"
    targets = "self.runPolicy.successPolicy.targetRoles.all(t, self.roles.exists(r, r.name == t))"
    return [
        rule("self.roles.exists(r, r.gpusPerReplica > 0)", refusals.NO_GPU_ROLE),
        rule(
            "self.injection != 'Never' || !has(self.activationCompression) || self.activationCompression.mode == 'None'",
            refusals.INJECTION,
        ),
        rule(f"{edges}self.communication.customEdges.scope != 'Pod' || {pod}", refusals.EDGE_RANK_POD),
        rule(f"{edges}self.communication.customEdges.scope != 'Gang' || {ranks.format(gang)}", refusals.EDGE_RANK_GANG),
        rule(
            "!has(self.runPolicy) || !has(self.runPolicy.successPolicy) || "
            f"!has(self.runPolicy.successPolicy.targetRoles) || {targets}",
            refusals.TARGET_ROLES,
        ),
    ]


def _roles(template: Schema) -> Schema:
    name = ruled(
        text(minLength=1, maxLength=63),
        rule(f"size(self) <= {model.MAX_ROLE_NAME} && self.matches('{LABEL}')", refusals.ROLE_NAME),
    )
    role = obj(
        {
            "name": name,
            "replicas": whole(1, model.MAX_REPLICAS, default=1),
            "gpusPerReplica": whole(0, model.MAX_GPUS),
            "gpuContainer": text(maxLength=63),
            "template": template,
        },
        required=("name", "gpusPerReplica", "template"),
    )
    return mapped(role, "name", minItems=1, maxItems=model.MAX_ROLES)


def _communication() -> Schema:
    edge = ruled(
        obj(
            {
                "from": whole(0, model.MAX_EDGE_RANK),
                "to": whole(0, model.MAX_EDGE_RANK),
                "weight": whole(1, 1_000_000, default=1),
            },
            required=("from", "to"),
        ),
        rule("self.from != self.to", refusals.EDGE_SELF),
    )
    edges = obj(
        {
            "scope": word(model.EdgeScope, model.EdgeScope.POD),
            "edges": atomic(edge, minItems=1, maxItems=model.MAX_EDGES),
        },
        required=("edges",),
    )
    schema = obj(
        {
            "pattern": word(Pattern, Pattern.RING),
            "customEdges": edges,
            "bandwidthSensitivity": word(model.Sensitivity, model.Sensitivity.AUTO),
            "gradientBytes": quantity(),
        }
    )
    return ruled(
        schema,
        rule("has(self.customEdges) == (self.pattern == 'Custom')", refusals.EDGES_WITHOUT_CUSTOM),
    )


def _placement() -> Schema:
    waits = {"machineWaitSeconds": 600, "rackWaitSeconds": 1800, "blockWaitSeconds": 3600}
    defaults = " && ".join(f"self.{name} == {seconds}" for name, seconds in waits.items())
    consolidation = ruled(
        obj(
            {
                "mode": word(model.ConsolidationMode, model.ConsolidationMode.DEFAULT),
                **{name: whole(0, model.MAX_WAIT_SECONDS, default=seconds) for name, seconds in waits.items()},
            }
        ),
        rule(f"self.mode == 'Fixed' || {defaults}", refusals.WAITS),
        rule(" && ".join(f"self.{a} <= self.{b}" for a, b in pairwise(waits)), refusals.WAITS_ORDER),
    )
    return obj(
        {
            "policy": word(model.PolicyName, model.PolicyName.PRESERVE),
            "requiredLink": word(model.RequiredLink, model.RequiredLink.ANY),
            "sameNUMANode": flag(default=False),
            "requiredLevel": word(model.LevelName, model.LevelName.CLUSTER),
            "consolidation": consolidation,
        }
    )


def _compression() -> Schema:
    override = obj(
        {"modules": text(minLength=1, maxLength=256), "mode": word(model.CompressionMode, model.CompressionMode.NONE)},
        required=("modules",),
    )
    target = ruled(
        text(default="0.01", maxLength=11),
        rule(r"self.matches('^0?\\.[0-9]+$') && double(self) > 0.0 && double(self) <= 0.1", refusals.TARGET),
    )
    schema = obj(
        {
            "mode": word(model.CompressionMode, model.CompressionMode.ERROR_BOUNDED),
            "targetGradientError": target,
            "overrides": atomic(override, maxItems=model.MAX_OVERRIDES),
            "minTensorBytes": whole(0, default=65536),
            "nonlinearInputs": word(model.NonlinearInputs, model.NonlinearInputs.KEEP),
            "offload": word(model.Offload, model.Offload.NEVER),
            "batchSize": word(model.BatchSize, model.BatchSize.KEEP),
            "baseBatchSize": whole(1, model.MAX_BATCH),
            "maxBatchSize": whole(1, model.MAX_BATCH),
            "failurePolicy": word(model.FailurePolicy, model.FailurePolicy.IGNORE),
        }
    )
    return ruled(
        schema,
        rule("self.mode != 'None' || self.offload == 'Never'", refusals.OFFLOAD_WITHOUT_MODE),
        rule("self.nonlinearInputs == 'Keep' || self.mode == 'ErrorBounded'", refusals.NONLINEAR),
        rule("self.mode != 'None' || self.batchSize == 'Keep'", refusals.BATCH_WITHOUT_MODE),
        rule("has(self.baseBatchSize) == (self.batchSize == 'Raise')", refusals.BATCH_BASE),
        rule("!has(self.maxBatchSize) || has(self.baseBatchSize) && self.maxBatchSize >= self.baseBatchSize", refusals.BATCH_MAX),
    )


def _run_policy() -> Schema:
    codes = obj(
        {
            "containerName": text(maxLength=63),
            "operator": word(model.ExitOperator, model.ExitOperator.IN),
            "values": atomic(whole(1, 255), minItems=1, maxItems=model.MAX_EXIT_CODES),
        },
        required=("values",),
    )
    failure = obj(
        {"onExitCodes": codes, "action": word(model.FailureAction, model.FailureAction.RESTART_GANG)},
        required=("onExitCodes",),
    )
    success = obj(
        {
            "targetRoles": atomic(text(maxLength=model.MAX_ROLE_NAME), maxItems=model.MAX_ROLES),
            "operator": word(model.SuccessOperator, model.SuccessOperator.ALL),
        }
    )
    preemption = obj(
        {
            "gracePeriodSeconds": whole(1, model.MAX_GRACE_SECONDS, default=60),
            "minRuntimeSeconds": whole(0, model.MAX_WAIT_SECONDS, default=300),
        }
    )
    return obj(
        {
            "backoffLimit": whole(0, 1000, default=3),
            "activeDeadlineSeconds": whole(1),
            "ttlSecondsAfterFinished": whole(0),
            "cleanPodPolicy": word(model.CleanPodPolicy, model.CleanPodPolicy.RUNNING),
            "podFailurePolicy": obj({"rules": atomic(failure, maxItems=model.MAX_RULES)}),
            "successPolicy": success,
            "evictions": word(model.Evictions, model.Evictions.ALLOW),
            "preemption": preemption,
        }
    )
