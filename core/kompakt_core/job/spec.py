"""From the TrainingJob object to its frozen values. Every error names the field's path and says what would be right."""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from kompakt_core import contract
from kompakt_core.errors import InvalidInput
from kompakt_core.ids import JobUid
from kompakt_core.job import model, refusals
from kompakt_core.job.quantity import parse_bytes
from kompakt_core.patterns.names import Pattern
from kompakt_core.profile import document
from kompakt_core.schema.fields import Fields, shown

LABEL: Final = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?", re.ASCII)  # as a Service's name (RFC 1035)
TARGET: Final = re.compile(r"0?\.[0-9]{1,9}", re.ASCII)


def parse_job(obj: Mapping[str, Any]) -> model.TrainingJob:
    """A whole TrainingJob object with metadata.

    Raises InvalidInput that names the field for anything the resource's schema would refuse and for every field
    that this version does not honour.
    """
    whole = Fields(obj, "")
    meta, spec = whole.inner("metadata"), Fields(whole.raw("spec"), "spec")
    roles = _roles(spec)
    job = model.TrainingJob(
        name=_label(meta, "name", model.MAX_JOB_NAME, refusals.JOB_NAME),
        namespace=meta.text("namespace", "default"),
        uid=JobUid(meta.text("uid", "")),
        generation=meta.whole("generation", 0),
        roles=roles,
        suspend=spec.flag("suspend", False),
        managed_by=spec.text("managedBy", contract.MANAGED_BY),
        communication=_communication(spec, roles),
        placement=_placement(spec.inner("placement")),
        compression=_compression(spec),
        injection=spec.choice("injection", model.Injection, model.Injection.DEFAULT),
        run_policy=_run_policy(spec.inner("runPolicy"), [role.name for role in roles]),
        priority_class_name=spec.text("priorityClassName", ""),
        shared_memory=_quantity(spec, "sharedMemory"),
        profile=_profile(meta.inner("annotations")),
    )
    spec.done()
    if job.injection is model.Injection.NEVER and job.compression.mode is not model.CompressionMode.NONE:
        spec.refuse("injection", refusals.INJECTION)
    return job


def _label(fields: Fields, name: str, longest: int, sentence: str) -> str:
    text: str = fields.text(name)
    if len(text) > longest or not LABEL.fullmatch(text):
        fields.refuse(name, f"{sentence}; got {shown(text)}")
    return text


def _profile(annotations: Fields) -> document.Profile | None:
    text = annotations.text(contract.ANN_PROFILE, "")
    return document.read(text, f"annotation {contract.ANN_PROFILE}") if text else None


def _quantity(fields: Fields, name: str) -> int:
    value = fields.raw(name, None)
    return -1 if value is None else parse_bytes(value, fields.where(name))


def _roles(spec: Fields) -> tuple[model.Role, ...]:
    roles = tuple(_role(Fields(item, path)) for item, path in spec.items("roles", low=1, high=model.MAX_ROLES))
    names = [role.name for role in roles]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        spec.refuse("roles", f"two roles are named {twice[0]!r}; names must differ")
    if all(role.gpus_per_replica == 0 for role in roles):
        spec.refuse("roles", refusals.NO_GPU_ROLE)
    return roles


def _role(fields: Fields) -> model.Role:
    role = model.Role(
        name=_label(fields, "name", model.MAX_ROLE_NAME, refusals.ROLE_NAME),
        replicas=fields.whole("replicas", 1, low=1, high=model.MAX_REPLICAS),
        gpus_per_replica=fields.whole("gpusPerReplica", high=model.MAX_GPUS),
        gpu_container=fields.text("gpuContainer", ""),
        template=fields.raw("template"),
    )
    _check_template(Fields(role.template, fields.where("template")))
    fields.done()
    return role


def _check_template(template: Fields) -> None:
    """Only what rendering relies on; the rest of the pod is the API server's to judge."""
    pod = Fields(template.raw("spec"), template.where("spec"))
    for item, path in pod.items("containers", low=1, high=1000):
        Fields(item, path).text("name")


def _communication(spec: Fields, roles: tuple[model.Role, ...]) -> model.Communication:
    if not spec.has("communication"):
        spec.raw("communication", None)
        return model.Communication()
    fields = spec.inner("communication")
    pattern = fields.choice("pattern", Pattern, Pattern.RING)
    edges = _custom_edges(fields, roles) if fields.has("customEdges") else fields.raw("customEdges", None)
    if (edges is None) == (pattern is Pattern.CUSTOM):
        fields.refuse("customEdges", refusals.EDGES_WITHOUT_CUSTOM)
    gradient_bytes = _quantity(fields, "gradientBytes")
    sensitivity = fields.choice("bandwidthSensitivity", model.Sensitivity, model.Sensitivity.AUTO)
    fields.done()
    return model.Communication(pattern, sensitivity, edges, gradient_bytes)


def _custom_edges(fields: Fields, roles: tuple[model.Role, ...]) -> model.CustomEdges:
    inner = fields.inner("customEdges")
    scope = inner.choice("scope", model.EdgeScope, model.EdgeScope.POD)
    edges = tuple(_edge(Fields(item, path)) for item, path in inner.items("edges", low=1, high=model.MAX_EDGES))
    inner.done()
    highest = max(max(edge.start, edge.end) for edge in edges)
    if scope is model.EdgeScope.POD and highest >= min(role.gpus_per_replica for role in roles if role.gpus_per_replica):
        inner.refuse("edges", refusals.EDGE_RANK_POD)
    if highest >= sum(role.replicas * role.gpus_per_replica for role in roles):
        inner.refuse("edges", refusals.EDGE_RANK_GANG)
    return model.CustomEdges(scope, edges)


def _edge(fields: Fields) -> model.Edge:
    edge = model.Edge(
        start=fields.whole("from", high=model.MAX_EDGE_RANK),
        end=fields.whole("to", high=model.MAX_EDGE_RANK),
        weight=fields.whole("weight", 1, low=1, high=1_000_000),
    )
    if edge.start == edge.end:
        fields.refuse("to", refusals.EDGE_SELF)
    fields.done()
    return edge


def _placement(fields: Fields) -> model.Placement:
    found = model.Placement(
        policy=fields.choice("policy", model.PolicyName, model.PolicyName.PRESERVE),
        required_link=fields.choice("requiredLink", model.RequiredLink, model.RequiredLink.ANY),
        same_numa_node=fields.flag("sameNUMANode", False),
        required_level=fields.choice("requiredLevel", model.LevelName, model.LevelName.CLUSTER),
        consolidation=_consolidation(fields.inner("consolidation")),
    )
    fields.done()
    return found


def _consolidation(fields: Fields) -> model.Consolidation:
    found = model.Consolidation(
        mode=fields.choice("mode", model.ConsolidationMode, model.ConsolidationMode.DEFAULT),
        machine_wait_seconds=fields.whole("machineWaitSeconds", 600, high=model.MAX_WAIT_SECONDS),
        rack_wait_seconds=fields.whole("rackWaitSeconds", 1800, high=model.MAX_WAIT_SECONDS),
        block_wait_seconds=fields.whole("blockWaitSeconds", 3600, high=model.MAX_WAIT_SECONDS),
    )
    if found.mode is not model.ConsolidationMode.FIXED and found != model.Consolidation(mode=found.mode):
        raise InvalidInput(f"{fields.path}: {refusals.WAITS}")
    if not found.machine_wait_seconds <= found.rack_wait_seconds <= found.block_wait_seconds:
        raise InvalidInput(f"{fields.path}: {refusals.WAITS_ORDER}")
    fields.done()
    return found


def _compression(spec: Fields) -> model.Compression:
    if not spec.has("activationCompression"):
        spec.raw("activationCompression", None)
        return model.Compression()
    fields = spec.inner("activationCompression")
    found = model.Compression(
        mode=fields.choice("mode", model.CompressionMode, model.CompressionMode.ERROR_BOUNDED),
        target=_target(fields),
        overrides=tuple(_override(Fields(item, path)) for item, path in fields.items("overrides", high=model.MAX_OVERRIDES)),
        min_tensor_bytes=fields.whole("minTensorBytes", 65536),
        nonlinear_inputs=fields.choice("nonlinearInputs", model.NonlinearInputs, model.NonlinearInputs.KEEP),
        offload=fields.choice("offload", model.Offload, model.Offload.NEVER),
        batch_size=fields.choice("batchSize", model.BatchSize, model.BatchSize.KEEP),
        base_batch=fields.whole("baseBatchSize", 0, low=1, high=model.MAX_BATCH) if fields.has("baseBatchSize") else 0,
        max_batch=fields.whole("maxBatchSize", 0, low=1, high=model.MAX_BATCH) if fields.has("maxBatchSize") else 0,
        failure_policy=fields.choice("failurePolicy", model.FailurePolicy, model.FailurePolicy.IGNORE),
    )
    if found.mode is model.CompressionMode.NONE and found.offload is not model.Offload.NEVER:
        fields.refuse("offload", refusals.OFFLOAD_WITHOUT_MODE)
    if found.nonlinear_inputs is model.NonlinearInputs.BOUNDED and found.mode is not model.CompressionMode.ERROR_BOUNDED:
        fields.refuse("nonlinearInputs", refusals.NONLINEAR)
    if found.mode is model.CompressionMode.NONE and found.batch_size is not model.BatchSize.KEEP:
        fields.refuse("batchSize", refusals.BATCH_WITHOUT_MODE)
    raises = found.batch_size is model.BatchSize.RAISE
    if raises != bool(found.base_batch):
        fields.refuse("baseBatchSize", refusals.BATCH_BASE)
    if found.max_batch and not (raises and found.max_batch >= found.base_batch):
        fields.refuse("maxBatchSize", refusals.BATCH_MAX)
    fields.done()
    # A raised batch that trains plainly runs out of memory.
    return replace(found, failure_policy=model.FailurePolicy.FAIL) if raises else found


def _target(fields: Fields) -> str:
    text: str = fields.text("targetGradientError", "0.01")
    if not TARGET.fullmatch(text) or not 0 < float(text) <= 0.1:
        fields.refuse("targetGradientError", f"{refusals.TARGET}; got {shown(text)}")
    return text


def _override(fields: Fields) -> model.Override:
    modules: str = fields.text("modules")
    if not 1 <= len(modules) <= 256:
        fields.refuse("modules", f"must be a module name or glob of 1 to 256 characters, got {shown(modules)}")
    override = model.Override(modules, fields.choice("mode", model.CompressionMode, model.CompressionMode.NONE))
    fields.done()
    return override


def _run_policy(fields: Fields, roles: list[str]) -> model.RunPolicy:
    policy = model.RunPolicy(
        backoff_limit=fields.whole("backoffLimit", 3, high=1000),
        active_deadline_seconds=fields.whole("activeDeadlineSeconds", None, low=1),
        ttl_seconds_after_finished=fields.whole("ttlSecondsAfterFinished", None),
        clean_pod_policy=fields.choice("cleanPodPolicy", model.CleanPodPolicy, model.CleanPodPolicy.RUNNING),
        failure_rules=_failure_rules(fields.inner("podFailurePolicy")),
        success=_success(fields.inner("successPolicy"), roles),
        evictions=fields.choice("evictions", model.Evictions, model.Evictions.ALLOW),
        preemption=_preemption(fields.inner("preemption")),
    )
    fields.done()
    return policy


def _failure_rules(fields: Fields) -> tuple[model.FailureRule, ...]:
    rules = tuple(_failure_rule(Fields(item, path)) for item, path in fields.items("rules", high=model.MAX_RULES))
    fields.done()
    return rules


def _failure_rule(fields: Fields) -> model.FailureRule:
    codes = Fields(fields.raw("onExitCodes"), fields.where("onExitCodes"))
    values = [_exit_code(value, path) for value, path in codes.items("values", low=1, high=model.MAX_EXIT_CODES)]
    rule = model.FailureRule(
        operator=codes.choice("operator", model.ExitOperator, model.ExitOperator.IN),
        values=frozenset(values),
        action=fields.choice("action", model.FailureAction, model.FailureAction.RESTART_GANG),
        container=codes.text("containerName", ""),
    )
    codes.done()
    fields.done()
    return rule


def _exit_code(value: object, path: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 255:
        raise InvalidInput(f"{path}: an exit code of a failure is a whole number from 1 to 255, got {shown(value)}")
    return value


def _success(fields: Fields, roles: list[str]) -> model.SuccessPolicy:
    names = []
    for name, path in fields.items("targetRoles", high=model.MAX_ROLES):
        if name not in roles:
            raise InvalidInput(f"{path}: {refusals.TARGET_ROLES}: {shown(name)}; it has {', '.join(roles)}")
        names.append(name)
    policy = model.SuccessPolicy(tuple(names), fields.choice("operator", model.SuccessOperator, model.SuccessOperator.ALL))
    fields.done()
    return policy


def _preemption(fields: Fields) -> model.Preemption:
    found = model.Preemption(
        grace_period_seconds=fields.whole("gracePeriodSeconds", 60, low=1, high=model.MAX_GRACE_SECONDS),
        min_runtime_seconds=fields.whole("minRuntimeSeconds", 300, high=model.MAX_WAIT_SECONDS),
    )
    fields.done()
    return found
