"""parse_job: what it reads, what it refuses, and that nothing but InvalidInput ever comes out."""

import contextlib
import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kompakt_core.errors import InvalidInput
from kompakt_core.job import model
from kompakt_core.job.spec import parse_job
from kompakt_core.patterns.names import Pattern
from tests.support.core.outcomes import refusal


def manifest(**spec: Any) -> dict[str, Any]:
    """A valid job of two workers with two GPUs each; keyword arguments replace fields of its spec."""
    template = {"spec": {"containers": [{"name": "trainer", "image": "digits"}]}}
    roles = [{"name": "worker", "replicas": 2, "gpusPerReplica": 2, "template": template}]
    return {
        "apiVersion": "kompakt.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": "digits", "namespace": "ml", "uid": "u-1", "generation": 3},
        "spec": {"roles": roles, **spec},
    }


def role(**fields: Any) -> dict[str, Any]:
    return {**copy.deepcopy(manifest()["spec"]["roles"][0]), **fields}


def test_a_small_job_gets_every_default() -> None:
    job = parse_job(manifest())
    assert (job.name, job.namespace, job.uid, job.generation) == ("digits", "ml", "u-1", 3)
    assert job.communication == model.Communication(Pattern.NONE, None, model.Sensitivity.LOW)
    assert job.compression.mode is model.CompressionMode.NONE
    assert job.run_policy == model.RunPolicy(backoff_limit=3)
    assert job.placement.policy is model.PlacementPolicy.PRESERVE
    assert job.workers == 2


def test_empty_blocks_mean_one_percent_of_error_and_a_sensitive_ring() -> None:
    job = parse_job(manifest(activationCompression={}, communication={}))
    assert (job.compression.mode, job.compression.target) == (model.CompressionMode.ERROR_BOUNDED, "0.01")
    assert (job.communication.pattern, job.communication.sensitivity) == (Pattern.RING, model.Sensitivity.AUTO)


def test_worker_indices_and_gpus_count_over_all_roles() -> None:
    job = parse_job(manifest(roles=[role(name="chief", replicas=1), role(), role(name="eval", gpusPerReplica=0)]))
    assert [job.first_index(r.name) for r in job.roles] == [0, 1, 3]
    assert [job.first_gpu(r.name) for r in job.roles] == [0, 2, 6]


def test_edges_of_scope_gang_join_any_two_gpus_of_the_gang() -> None:
    found = {"scope": "Gang", "edges": [{"from": 0, "to": 3, "weight": 2}]}
    job = parse_job(manifest(communication={"pattern": "Custom", "customEdges": found}))
    assert job.communication.custom_edges == model.CustomEdges(scope=model.EdgeScope.GANG, edges=(model.WeightedEdge(0, 3, 2),))


def nested(path: str, value: Any) -> dict[str, Any]:
    """Fields of a spec, of which one is given by its path."""
    name, _, inner = path.partition(".")
    return {name: nested(inner, value) if inner else value}


COMPRESSION, EDGES = "activationCompression", "communication"
FIRST = {"from": 0, "to": 1}


def edges(to: int, **more: Any) -> dict[str, Any]:
    return {"pattern": "Custom", "customEdges": {"edges": [{"from": 0, "to": to}], **more}}


REFUSED: dict[str, tuple[str, Any, str]] = {
    "unknown pattern": ("communication.pattern", "Donut", "spec.communication.pattern: must be one of"),
    "no workers": ("roles", [role(replicas=0)], "spec.roles[0].replicas: must be between 1"),
    "no containers": (
        "roles",
        [role(template={"spec": {"containers": []}})],
        "spec.roles[0].template.spec.containers: must have",
    ),
    "template without spec": ("roles", [role(template={})], "spec.roles[0].template.spec: is required"),
    "edge to a missing rank of the pod": (EDGES, edges(2), "an edge names a rank that no GPU role has"),
    "edge to a missing rank of the gang": (EDGES, edges(4, scope="Gang"), "an edge names a rank that the gang does not have"),
    "edges without Custom": (EDGES, {"customEdges": {"edges": [FIRST]}}, "go together"),
    "two roles of one name": ("roles", [role(), role()], "two roles are named 'worker'"),
    "upper-case role": ("roles", [role(name="Worker")], "spec.roles[0].name: a role's name must be"),
    "no GPU anywhere": ("roles", [role(gpusPerReplica=0)], "at least one role needs gpusPerReplica"),
    "more pods than a status holds": (
        "roles",
        [role(name=f"r{number}", replicas=513) for number in range(8)],
        "a job has at most 4096 pods, all roles together",
    ),
    "target too high": (f"{COMPRESSION}.targetGradientError", "0.11", "above 0 and at most 0.1"),
    "target as a number": (f"{COMPRESSION}.targetGradientError", 0.01, "expected text"),
    "target of nothing": (f"{COMPRESSION}.targetGradientError", "0.0", "Compression.targetGradientError: "),
    "an unknown mode": (f"{COMPRESSION}.mode", "Some", "spec.activationCompression.mode: must be one of"),
    "unknown activation gradients": (f"{COMPRESSION}.activationGradients", "Keep", "activationGradients: must be one of"),
    "unknown nonlinear inputs": (f"{COMPRESSION}.nonlinearInputs", "Some", "Compression.nonlinearInputs: must be one of"),
    "negative bytes": (f"{COMPRESSION}.minTensorBytes", -1, "spec.activationCompression.minTensorBytes: must be"),
    "bytes as text": (f"{COMPRESSION}.minTensorBytes", "64Ki", "spec.activationCompression.minTensorBytes: "),
    "an override of nothing": (
        f"{COMPRESSION}.overrides",
        [{"modules": "a.*"}, {"modules": "", "mode": "None"}],
        "spec.activationCompression.overrides[1].modules: must be a module name or glob",
    ),
    "an override to an unknown mode": (
        f"{COMPRESSION}.overrides",
        [{"modules": "a.*", "mode": "Off"}],
        "spec.activationCompression.overrides[0].mode: must be one of",
    ),
    "an override with more than these": (
        f"{COMPRESSION}.overrides",
        [{"modules": "a.*", "mod": "None"}],
        "spec.activationCompression.overrides[0].mod: unknown field",
    ),
    "overrides as a map": (f"{COMPRESSION}.overrides", {"a.*": "None"}, "activationCompression.overrides: expected a list"),
    "offload without a mode": (COMPRESSION, {"mode": "None", "offload": "Auto"}, "offload Auto needs a mode"),
    "a budget in another unit": (f"{COMPRESSION}.memoryBudget", "20GiB", "memoryBudget: memoryBudget is an amount above 0"),
    "half a byte": (f"{COMPRESSION}.memoryBudget", "0.5", "memoryBudget is an amount above 0"),
    "a budget of nothing": (f"{COMPRESSION}.memoryBudget", "0Gi", "memoryBudget is an amount above 0"),
    "more than all memory": (f"{COMPRESSION}.memoryBudget", "101%", "at most 100%, such as 80%; got '101%'"),
    "a budget without errors": (COMPRESSION, {"mode": "Lossless", "memoryBudget": "1Gi"}, "memoryBudget needs mode ErrorBounded"),
    "an unknown offload": (f"{COMPRESSION}.offload", "Always", "Compression.offload: must be one of"),
    "a batch raised from nothing": (f"{COMPRESSION}.batchSize", "Raise", "baseBatchSize and batchSize Raise go together"),
    "a base for nothing": (f"{COMPRESSION}.baseBatchSize", 8, "baseBatchSize and batchSize Raise go together"),
    "a base of nothing": (COMPRESSION, {"batchSize": "Raise", "baseBatchSize": 0}, "baseBatchSize: must be between 1"),
    "a maximum below the base": (
        COMPRESSION,
        {"batchSize": "Raise", "baseBatchSize": 8, "maxBatchSize": 7},
        "is at least baseBatchSize",
    ),
    "a maximum for nothing": (f"{COMPRESSION}.maxBatchSize", 7, "maxBatchSize needs batchSize Raise"),
    "bounded gradients without a mode": (
        COMPRESSION,
        {"mode": "Lossless", "activationGradients": "Bounded"},
        "activationGradients Bounded needs mode ErrorBounded",
    ),
    "gradients of two kinds": (
        COMPRESSION,
        {"activationGradients": "Bounded", "nonlinearInputs": "Keep"},
        "activationGradients and nonlinearInputs, its deprecated name, contradict each other",
    ),
    "nonlinear inputs without a mode": (
        COMPRESSION,
        {"mode": "Lossless", "nonlinearInputs": "Bounded"},
        "nonlinearInputs Bounded needs mode ErrorBounded",
    ),
    "batch without a mode": (COMPRESSION, {"mode": "None", "batchSize": "Suggest"}, "needs a mode other than None"),
    "waits that fall": (
        "placement.consolidation",
        {"mode": "Fixed", "machineWaitSeconds": 1801},
        "machineWaitSeconds <= rackWaitSeconds",
    ),
    "a wait of ages": ("placement.consolidation", {"mode": "Fixed", "blockWaitSeconds": 1 << 40}, "must be between 0 and"),
    "waits without Fixed": ("placement.consolidation.rackWaitSeconds", 5, "read in mode Fixed only"),
    "no grace": ("runPolicy.preemption.gracePeriodSeconds", 0, "spec.runPolicy.preemption.gracePeriodSeconds: must be"),
    "success of a missing role": ("runPolicy.successPolicy.targetRoles", ["x"], "a role that the job does not have"),
    "exit code 0": ("runPolicy.podFailurePolicy.rules", [{"onExitCodes": {"values": [0]}}], "from 1 to 255"),
    "misspelt field": ("suspended", True, "spec.suspended: unknown field"),
    "quantity": ("sharedMemory", "lots", "spec.sharedMemory: expected a quantity"),
}


@pytest.mark.parametrize(("path", "value", "sentence"), REFUSED.values(), ids=REFUSED)
def test_a_bad_field_is_refused_with_its_path(path: str, value: Any, sentence: str) -> None:
    said = refusal(parse_job, manifest(**nested(path, value)))
    assert said.startswith("spec.")
    assert sentence in said


def test_compression_without_injection_is_refused() -> None:
    assert "needs injection Default" in refusal(parse_job, manifest(activationCompression={}, injection="Never"))


@pytest.mark.parametrize("name", ["x" * 41, "a.b", "1a", "A", ""])
def test_a_job_name_that_cannot_be_part_of_a_hostname_is_refused(name: str) -> None:
    job = manifest()
    job["metadata"]["name"] = name
    assert "metadata.name" in refusal(parse_job, job)


@pytest.mark.parametrize(
    ("text", "size"), [("512Mi", 512 << 20), ("2G", 2 * 10**9), (5, 5), ("1.5Gi", 3 << 29), ("100m", 1), ("1e3", 1000)]
)
def test_shared_memory_is_read_in_bytes(text: object, size: int) -> None:
    assert parse_job(manifest(sharedMemory=text)).shared_memory == size


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
JUNK = st.recursive(
    SCALARS | st.sampled_from(["Ring", "None", "1e99", "9" * 40]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
FULL = manifest(
    communication={"pattern": "Custom", "customEdges": {"scope": "Pod", "edges": [{"from": 0, "to": 1, "weight": 1}]}},
    placement={"policy": "Best", "consolidation": {"mode": "NoWait"}},
    activationCompression={"targetGradientError": ".05", "overrides": [{"modules": "head.*", "mode": "None"}]},
    runPolicy={
        "podFailurePolicy": {"rules": [{"onExitCodes": {"values": [1], "operator": "In"}, "action": "FailJob"}]},
        "successPolicy": {"targetRoles": ["worker"]},
        "preemption": {"gracePeriodSeconds": 60},
    },
    sharedMemory="1Gi",
)


def paths(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of every value inside an object."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [at, *(path for key, child in inside for path in paths(child, (*at, key)))]


@settings(deadline=None)
@given(path=st.sampled_from(paths(FULL)[1:]), junk=JUNK)
def test_any_mutated_job_is_read_or_refused_never_crashes(path: tuple[Any, ...], junk: Any) -> None:
    job = copy.deepcopy(FULL)
    spot: Any = job
    for key in path[:-1]:
        spot = spot[key]
    spot[path[-1]] = junk
    with contextlib.suppress(InvalidInput):
        assert parse_job(job).workers >= 1
