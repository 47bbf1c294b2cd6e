"""The objects of one attempt, as claims."""

import json
from typing import Any

import pytest
from msgspec import structs

from kompakt_core import contract
from kompakt_core.errors import InvalidInput
from kompakt_core.job.batches import Batch, BatchState
from kompakt_core.job.model import ActivationGradients, TrainingJob
from kompakt_core.job.spec import parse_job
from kompakt_operator import render
from kompakt_operator.quota import exceeded, needed

IMAGE = "registry.example/kompakt-runtime:1"
BOOTSTRAP = f"{contract.INJECT_PAYLOAD_PATH}/bootstrap"


def job(container: dict[str, Any] | None = None, pod: dict[str, Any] | None = None, *, gpus: int = 2, **spec: Any) -> TrainingJob:
    trainer = {"name": "trainer", "image": "i", **(container or {})}
    roles = [
        {"name": "worker", "replicas": 2, "gpusPerReplica": gpus, "template": {"spec": {"containers": [trainer], **(pod or {})}}}
    ]
    return parse_job({"metadata": {"name": "j", "namespace": "ml", "uid": "u"}, "spec": {"roles": roles, **spec}})


def hooked(*args: Any, **fields: Any) -> TrainingJob:
    """A job without compression that asks for the start-up hook."""
    return job(*args, **{"injection": "Always", **fields})


def rendered(found: TrainingJob, *, role: int = 0, index: int = 1) -> dict[str, Any]:
    return render.pod(found, found.roles[role], index, 3, image=IMAGE)


def env(container: dict[str, Any]) -> dict[str, Any]:
    return {v["name"]: v.get("value", v.get("valueFrom")) for v in container.get("env", ())}


def variable(name: str, value: str) -> dict[str, Any]:
    return {"env": [{"name": name, "value": value}]}


def test_a_worker_is_gated_named_and_owned() -> None:
    pod = rendered(job())
    meta, spec = pod["metadata"], pod["spec"]
    assert (meta["name"], spec["hostname"], spec["subdomain"]) == ("j-worker-1-a3", "j-worker-1", "j-a3")
    assert (spec["schedulerName"], spec["restartPolicy"]) == ("kompakt-scheduler", "Never")
    assert spec["schedulingGates"] == [{"name": contract.GATE}]
    assert [(o["uid"], o["controller"]) for o in meta["ownerReferences"]] == [("u", True)]
    assert meta["labels"] == {
        contract.LABEL_JOB_NAME: "j",
        contract.LABEL_JOB_UID: "u",
        contract.LABEL_ROLE: "worker",
        contract.LABEL_WORKER_INDEX: "1",
        contract.LABEL_ATTEMPT: "3",
    }


def test_workers_keep_autoscalers_from_their_nodes_unless_that_is_switched_off() -> None:
    safe, disrupt = "cluster-autoscaler.kubernetes.io/safe-to-evict", "karpenter.sh/do-not-disrupt"
    notes = rendered(job())["metadata"]["annotations"]
    assert (notes[safe], notes[disrupt]) == ("false", "true")
    off = render.pod(job(), job().roles[0], 0, 1, image=IMAGE, keeps_node=False)
    assert not {safe, disrupt} & off["metadata"]["annotations"].keys()
    found = job()
    own = {**found.roles[0].template, "metadata": {"annotations": {safe: "true"}}}
    role = structs.replace(found.roles[0], template=own)
    notes = render.pod(structs.replace(found, roles=(role,)), role, 0, 1, image=IMAGE)["metadata"]["annotations"]
    assert (notes[safe], notes[disrupt]) == ("true", "true"), "the template's word wins"


def test_the_service_resolves_pods_of_its_attempt_before_they_are_ready() -> None:
    service = render.service(job(), 3)
    assert service["metadata"]["name"] == "j-a3"
    assert service["spec"] == {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": {contract.LABEL_JOB_UID: "u", contract.LABEL_ATTEMPT: "3"},
    }


def test_gpus_go_to_the_gpu_container_only() -> None:
    containers = [{"name": "log", "image": "i"}, {"name": "trainer", "image": "i", "resources": {"limits": {"cpu": 1}}}]
    template = {"spec": {"containers": containers}}
    roles = [{"name": "worker", "gpusPerReplica": 4, "gpuContainer": "trainer", "template": template}]
    log, trainer = rendered(job(roles=roles), index=0)["spec"]["containers"]
    assert trainer["resources"] == {"limits": {"cpu": 1, contract.RESOURCE: "4"}, "requests": {contract.RESOURCE: "4"}}
    assert "resources" not in log
    assert (env(log)[contract.ENV_NVIDIA_VISIBLE], contract.ENV_NVIDIA_VISIBLE in env(trainer)) == ("void", False)


def test_gpus_are_asked_for_by_the_name_that_the_administrator_chose() -> None:
    made = render.pod(job(), job().roles[0], 0, 1, image=IMAGE, resource="nvidia.com/gpu")
    asked = made["spec"]["containers"][0]["resources"]
    assert set(asked["limits"]) & set(contract.RESOURCES) == {"nvidia.com/gpu"}
    quota = {"metadata": {"name": "q"}, "spec": {}, "status": {"hard": {"requests.nvidia.com/gpu": "3"}}}
    assert "requested: requests.nvidia.com/gpu=4" in exceeded([quota], needed([2, 2], "nvidia.com/gpu"))
    assert exceeded([quota], needed([2, 2])) == ""


def by_claim(made: TrainingJob, role: int = 0) -> dict[str, Any]:
    return render.pod(made, made.roles[role], 0, 1, image=IMAGE, claims_scheduler="gpu-scheduler")


def test_gpus_come_by_a_claim_where_the_administrator_chose_so() -> None:
    pod = by_claim(job())
    (container,) = pod["spec"]["containers"]
    assert container["resources"]["claims"] == [{"name": "kompakt-gpus"}]
    assert not {contract.RESOURCE} & {name for part in ("limits", "requests") for name in container["resources"].get(part, ())}
    assert pod["spec"]["resourceClaims"] == [{"name": "kompakt-gpus", "resourceClaimName": pod["metadata"]["name"]}]
    assert pod["spec"]["schedulerName"] == "gpu-scheduler"
    assert pod["metadata"]["annotations"][contract.ANN_GPUS_BY_CLAIM] == "2"
    assert pod["spec"]["schedulingGates"] == [{"name": contract.GATE}]


def test_claims_of_the_template_stay_beside_ours() -> None:
    own = {"name": "nic", "resourceClaimTemplateName": "nics"}
    container = {"name": "trainer", "image": "i", "resources": {"claims": [{"name": "nic"}]}}
    roles = [{"name": "worker", "gpusPerReplica": 4, "template": {"spec": {"containers": [container], "resourceClaims": [own]}}}]
    spec = by_claim(job(roles=roles))["spec"]
    assert [one["name"] for one in spec["resourceClaims"]] == ["nic", "kompakt-gpus"]
    assert [one["name"] for one in spec["containers"][0]["resources"]["claims"]] == ["nic", "kompakt-gpus"]


def test_a_role_without_gpus_waits_for_the_gang_and_has_no_claim() -> None:
    template = {"spec": {"containers": [{"name": "reader", "image": "i"}]}}
    gpus = [
        {"name": "worker", "gpusPerReplica": 4, "template": template},
        {"name": "reader", "gpusPerReplica": 0, "template": template},
    ]
    pod = by_claim(job(roles=gpus), 1)
    assert pod["metadata"]["annotations"][contract.ANN_GPUS_BY_CLAIM] == "0"
    assert pod["spec"].get("resourceClaims", []) == []
    assert pod["spec"]["schedulerName"] == "gpu-scheduler"


def test_a_template_cannot_say_that_its_gpus_come_by_claim() -> None:
    found = job()
    template = {**found.roles[0].template, "metadata": {"annotations": {contract.ANN_GPUS_BY_CLAIM: "1"}}}
    role = structs.replace(found.roles[0], template=template)
    made = render.pod(structs.replace(found, roles=(role,)), role, 0, 1, image=IMAGE)
    assert contract.ANN_GPUS_BY_CLAIM not in made["metadata"]["annotations"]


RANK = {"fieldRef": {"fieldPath": "metadata.annotations['kompakt.dev/rank']"}}
WISH = {"mode": "ErrorBounded", "targetGradientError": "0.05", "overrides": [{"modules": "head.*", "mode": "None"}]}
# A job's container, pod and other fields, and what the container then finds in its environment (None: nothing of that name).
TRAINERS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "torchrun's options": ({}, {"PET_NNODES": "2", "PET_NPROC_PER_NODE": "2", "PET_NODE_RANK": RANK, "RANK": None}),
    "where rank 0 is": ({}, {"MASTER_ADDR": "j-worker-0.j-a3", "PET_MASTER_ADDR": "j-worker-0.j-a3", "MASTER_PORT": "29500"}),
    "the attempt": ({}, {"KOMPAKT_ATTEMPT": "3"}),
    "a rank without torchrun, with one GPU": (
        {"gpus": 1},
        {"WORLD_SIZE": "2", "LOCAL_RANK": "0", "RANK": RANK, "PET_NODE_RANK": RANK},
    ),
    "a value of the template": ({"container": variable("MASTER_PORT", "1234")}, {"MASTER_PORT": "1234"}),
    "a Python path behind ours": ({"container": variable("PYTHONPATH", "/app")}, {"PYTHONPATH": f"{BOOTSTRAP}:/app"}),
    "what the runtime shall do": ({"activationCompression": WISH}, {"KOMPAKT_MODE": "ErrorBounded", "KOMPAKT_TARGET": "0.05"}),
    "its exceptions": ({"activationCompression": WISH}, {"KOMPAKT_OVERRIDES": '[{"modules": "head.*", "mode": "None"}]'}),
    "no port on a node's own network": ({"pod": {"hostNetwork": True}}, {"KOMPAKT_METRICS_PORT": "0"}),
    "where last words go": ({"container": {"terminationMessagePath": "/tmp/last"}}, {"KOMPAKT_TERMINATION_LOG": "/tmp/last"}),
    "the usual place of last words": ({}, {"KOMPAKT_TERMINATION_LOG": None}),
    "a batch size of its own": (
        {"container": variable("KOMPAKT_BATCH_SIZE", "32"), "activationCompression": {"batchSize": "Suggest"}},
        {"KOMPAKT_BATCH_SIZE": "32"},
    ),
}


@pytest.mark.parametrize(("fields", "wanted"), TRAINERS.values(), ids=TRAINERS)
def test_a_trainer_finds_in_its_environment(fields: dict[str, Any], wanted: dict[str, Any]) -> None:
    (trainer,) = rendered(hooked(**fields))["spec"]["containers"]
    found = env(trainer)
    assert {name: found.get(name) for name in wanted} == wanted
    assert len(found) == len(trainer["env"]), "no name twice"
    assert ("ports" in trainer) == (not fields.get("pod"))


def test_the_runtime_is_told_all_that_it_reads() -> None:
    (trainer,) = rendered(job(activationCompression=WISH))["spec"]["containers"]
    assert set(env(trainer)) >= contract.RUNTIME_ENV - {contract.ENV_NONLINEAR}


@pytest.mark.parametrize(("gradients", "told"), [(ActivationGradients.BOUNDED, "Bounded"), (None, "Exact")])
def test_the_runtime_is_told_what_the_status_says_of_gradients(gradients: ActivationGradients | None, told: str) -> None:
    found = job(activationCompression=WISH)
    pod = render.pod(found, found.roles[0], 0, 1, image=IMAGE, gradients=gradients)
    assert env(pod["spec"]["containers"][0])["KOMPAKT_ACTIVATION_GRADIENTS"] == told


def test_a_cpu_role_is_no_rank_and_gets_no_hook() -> None:
    template = {"spec": {"containers": [{"name": "c", "image": "i"}]}}
    roles = [
        {"name": "reader", "gpusPerReplica": 0, "template": template},
        {"name": "worker", "replicas": 2, "gpusPerReplica": 1, "template": template},
    ]
    reader, worker = (rendered(job(roles=roles), role=i, index=0) for i in (0, 1))
    assert env(worker["spec"]["containers"][0])["PET_NNODES"] == "2"
    assert env(worker["spec"]["containers"][0])["MASTER_ADDR"] == "j-worker-0.j-a3"
    assert "PET_NNODES" not in env(reader["spec"]["containers"][0])
    assert (reader["spec"]["initContainers"], reader["spec"].get("volumes")) == ([], None)
    assert worker["metadata"]["labels"][contract.LABEL_WORKER_INDEX] == "1"


def test_the_hook_comes_by_an_init_container_that_restricted_namespaces_admit() -> None:
    spec = rendered(hooked())["spec"]
    init, trainer = spec["initContainers"][0], spec["containers"][0]
    assert (init["image"], init["command"]) == (IMAGE, ["/payload/install", contract.INJECT_PAYLOAD_PATH])
    restricted = {"runAsNonRoot": True, "allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    assert init["securityContext"].items() >= (restricted | {"seccompProfile": {"type": "RuntimeDefault"}}).items()
    assert init["resources"]["limits"].keys() == init["resources"]["requests"].keys() == {"cpu", "memory"}
    assert env(trainer)["PYTHONPATH"] == BOOTSTRAP
    mounts = {mount["name"]: mount for mount in trainer["volumeMounts"]}
    assert mounts[contract.INJECT_PAYLOAD_VOLUME]["readOnly"] is True
    assert trainer["ports"] == [{"name": "kompakt-metrics", "containerPort": 9402, "protocol": "TCP"}]


MODES: list[dict[str, Any]] = [{}, {"activationCompression": {"mode": "None"}}, {"injection": "Never"}]


@pytest.mark.parametrize("fields", MODES, ids=["no block", "mode None", "Never"])
def test_without_compression_nothing_is_injected_and_nothing_of_ours_pulled(fields: dict[str, Any]) -> None:
    spec = rendered(job(**fields))["spec"]
    (trainer,) = spec["containers"]
    assert spec["initContainers"] == []
    assert (
        [volume["name"] for volume in spec["volumes"]] == [mount["name"] for mount in trainer["volumeMounts"]] == ["kompakt-shm"]
    )
    assert "ports" not in trainer
    ranks = {"MASTER_ADDR", "MASTER_PORT", contract.ENV_ATTEMPT}
    assert {name for name in env(trainer) if not name.startswith("PET_")} == ranks
    assert IMAGE not in str(spec)


CLASHES = [
    {"env": [{"name": "PYTHONPATH", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}}]},
    {"envFrom": [{"configMapRef": {"name": "c"}}]},
]


@pytest.mark.parametrize("container", CLASHES, ids=["valueFrom", "envFrom"])
def test_a_python_path_that_cannot_be_read_refuses_compression_and_only_leaves_out_the_bare_hook(
    container: dict[str, Any],
) -> None:
    with pytest.raises(InvalidInput, match=r"spec\.roles\[0\]\.template: .*set injection: Never"):
        render.checked(job(container, activationCompression={}))
    plain = hooked(container)
    assert "set injection: Never" in render.checked(plain)
    assert rendered(plain)["spec"]["initContainers"] == []
    assert render.checked(job(container)) == render.checked(job(container, injection="Never")) == ""


def test_requests_to_the_planner_are_written_and_answers_in_the_template_are_stripped() -> None:
    template = {
        "metadata": {"annotations": {contract.ANN_GPUS: "GPU-stolen", "team": "vision"}},
        "spec": {"containers": [{"name": "t", "image": "i"}]},
    }
    found = job(roles=[{"name": "worker", "gpusPerReplica": 2, "template": template}], communication={"pattern": "Clique"})
    assert rendered(found, index=0)["metadata"]["annotations"] == render.KEEPS_ITS_NODE | {
        "team": "vision",
        contract.ANN_PATTERN: "Clique",
        contract.ANN_SENSITIVITY: "Auto",
        contract.ANN_POLICY: "Preserve",
        contract.ANN_REQUIRED_LINK: "Any",
    }


@pytest.mark.parametrize(
    ("container", "spec", "volume"),
    [
        ({"resources": {"limits": {"memory": "4Gi"}}}, {}, {"medium": "Memory", "sizeLimit": str(2 << 30)}),
        ({"resources": {"limits": {"memory": "4Gi"}}}, {"sharedMemory": "1Gi"}, {"medium": "Memory", "sizeLimit": str(1 << 30)}),
        ({}, {}, {"medium": "Memory"}),
    ],
)
def test_shared_memory_is_half_the_memory_limit_unless_said(
    container: dict[str, Any], spec: dict[str, Any], volume: dict[str, Any]
) -> None:
    found = rendered(job(container, **spec))["spec"]
    assert next(v for v in found["volumes"] if v["name"] == "kompakt-shm")["emptyDir"] == volume


@pytest.mark.parametrize("limit", ["x", "-1", True, ["4Gi"]])
def test_a_memory_limit_that_is_no_quantity_is_refused_before_any_pod_is_made(limit: Any) -> None:
    with pytest.raises(InvalidInput, match=r"template\.spec: memory limit of container trainer: expected a quantity"):
        render.checked(job({"resources": {"limits": {"memory": limit}}}))


def test_a_template_that_mounts_shared_memory_keeps_its_own() -> None:
    container = {"volumeMounts": [{"name": "dshm", "mountPath": "/dev/shm"}]}
    found = rendered(job(container, {"volumes": [{"name": "dshm", "emptyDir": {}}]}))["spec"]
    assert "kompakt-shm" not in {v["name"] for v in found["volumes"]}


def test_a_worker_waits_a_minute_for_a_lost_node_unless_its_template_says_otherwise() -> None:
    patience = {t["key"]: t["tolerationSeconds"] for t in rendered(job())["spec"]["tolerations"]}
    assert patience == {"node.kubernetes.io/not-ready": 60, "node.kubernetes.io/unreachable": 60}
    own = {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 9}
    found = rendered(job(pod={"tolerations": [own]}))["spec"]["tolerations"]
    assert [(t["key"], t["tolerationSeconds"]) for t in found] == [
        ("node.kubernetes.io/not-ready", 9),
        ("node.kubernetes.io/unreachable", 60),
    ]
    everything = [{"operator": "Exists"}]
    assert rendered(job(pod={"tolerations": everything}))["spec"]["tolerations"] == everything


def test_rendering_leaves_the_job_as_it_was() -> None:
    found = job(activationCompression={})
    before = json.dumps(found.roles[0].template)
    assert rendered(found) == rendered(found)
    assert json.dumps(found.roles[0].template) == before


def test_restart_rules_and_sidecars_of_the_template_are_kept() -> None:
    rules = [{"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}]
    sidecar = {"name": "log", "restartPolicy": "Always"}
    found = job({"restartPolicy": "Never", "restartPolicyRules": rules}, {"initContainers": [sidecar]})
    render.checked(found)
    spec = rendered(found)["spec"]
    assert spec["containers"][0]["restartPolicyRules"] == rules
    assert [c["name"] for c in spec["initContainers"] if c.get("restartPolicy") == "Always"] == ["log"]


def test_a_budget_covers_exactly_the_pods_of_one_attempt() -> None:
    budget, labels = render.budget(job(), 3), rendered(job())["metadata"]["labels"]
    assert budget["spec"]["maxUnavailable"] == 0
    assert budget["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert (budget["metadata"]["name"], budget["metadata"]["ownerReferences"][0]["kind"]) == ("j-a3", "TrainingJob")


REFUSED: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "own GPU request": ({"resources": {"limits": {"nvidia.com/gpu": 1}}}, {}, "ask for GPUs with the role's gpusPerReplica"),
    "our resource": ({"resources": {"requests": {"kompakt.dev/gpu": 1}}}, {}, "ask for GPUs with the role's gpusPerReplica"),
    "MIG": ({"resources": {"limits": {"nvidia.com/mig-1g.5gb": 1}}}, {}, "MIG and time-slicing are not supported in v1alpha1"),
    "node name": ({}, {"nodeName": "n1"}, "kompakt chooses the node"),
    "another scheduler": ({}, {"schedulerName": "default-scheduler"}, "workers are placed by kompakt-scheduler"),
    "restart policy": ({}, {"restartPolicy": "OnFailure"}, "must be Never or left out"),
    "hostname": ({}, {"hostname": "h"}, "spec.hostname: is set by kompakt"),
    "a container that restarts alone": ({"restartPolicy": "OnFailure"}, {}, "a failed worker restarts the whole gang"),
    "our volume": ({}, {"volumes": [{"name": "kompakt-state"}]}, "is kompakt's own"),
    "our variable": (variable("KOMPAKT_MODE", "None"), {}, "KOMPAKT_MODE is written by kompakt"),
    "all GPUs by a variable": (variable("NVIDIA_VISIBLE_DEVICES", "all"), {}, "env: NVIDIA_VISIBLE_DEVICES asks NVIDIA's"),
    "GPUs by a variable from elsewhere": (
        {"env": [{"name": "NVIDIA_VISIBLE_DEVICES", "valueFrom": {"configMapKeyRef": {"name": "a", "key": "b"}}}]},
        {},
        "leave it out: a container has the GPUs of gpusPerReplica",
    ),
    "init container with GPUs by a variable": (
        {},
        {"initContainers": [{"name": "x", **variable("NVIDIA_VISIBLE_DEVICES", "0")}]},
        "spec.initContainers[0].env: NVIDIA_VISIBLE_DEVICES",
    ),
    "init container with GPUs": (
        {},
        {"initContainers": [{"name": "x", "resources": {"limits": {"nvidia.com/gpu": 1}}}]},
        "spec.initContainers[0].resources.limits",
    ),
}


@pytest.mark.parametrize(("container", "pod", "sentence"), REFUSED.values(), ids=REFUSED)
def test_a_template_that_cannot_work_is_refused_with_a_sentence(
    container: dict[str, Any], pod: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        render.checked(job(container, pod))
    assert str(caught.value).startswith("spec.roles[0].template.spec.")
    assert sentence in str(caught.value)


def test_a_template_may_say_that_a_container_has_no_gpus() -> None:
    render.checked(job(variable("NVIDIA_VISIBLE_DEVICES", "void")))


def test_a_gpu_container_that_is_not_there_is_refused() -> None:
    template = {"spec": {"containers": [{"name": "a"}, {"name": "b"}]}}
    roles = [{"name": "w", "gpusPerReplica": 1, "gpuContainer": "c", "template": template}]
    with pytest.raises(InvalidInput, match="gpuContainer names 'c'; the containers are a, b"):
        render.checked(job(roles=roles))


def test_a_port_of_the_template_stays_as_it_is() -> None:
    own = [{"name": "mine", "containerPort": 9402}]
    (trainer,) = rendered(job({"ports": own}))["spec"]["containers"]
    assert trainer["ports"] == own
    (bare,) = rendered(job({"ports": []}, injection="Never"))["spec"]["containers"]
    assert bare["ports"] == []


def test_a_raised_batch_stands_before_what_refers_to_it_in_every_container() -> None:
    found = job(
        variable("ARGS", "--batch=$(KOMPAKT_BATCH_SIZE)"),
        {"initContainers": [{"name": "warm", "image": "i"}]},
        activationCompression={"batchSize": "Raise", "baseBatchSize": 64},
    )
    for state, told, size in (
        (BatchState.MEASURING, "Measure", 64),
        (BatchState.RAISED, "Raise", 92),
        (BatchState.KEPT, "Raise", 64),
    ):
        batch = Batch(state, size, 64, "")
        spec = render.pod(found, found.roles[0], 0, 1, image=IMAGE, batch=batch)["spec"]
        trainer = spec["containers"][0]
        names = [variable["name"] for variable in trainer["env"]]
        assert names.index("KOMPAKT_BATCH_SIZE") < names.index("ARGS"), "kubelet expands only what stands before"
        assert len(names) == len(set(names))
        assert (env(trainer)["KOMPAKT_BATCH"], env(trainer)["KOMPAKT_BATCH_SIZE"]) == (told, str(size))
        assert env(trainer)["KOMPAKT_FAILURE_POLICY"] == "Fail"
        helper = next(c for c in spec["initContainers"] if c["name"] == "warm")
        assert env(helper)["KOMPAKT_BATCH_SIZE"] == str(size)


def test_a_batch_size_of_the_template_is_refused_only_where_kompakt_raises_it() -> None:
    own = variable("KOMPAKT_BATCH_SIZE", "32")
    assert render.checked(job(own, activationCompression={"batchSize": "Suggest"})) == ""
    with pytest.raises(InvalidInput, match="KOMPAKT_BATCH_SIZE is written by kompakt"):
        render.checked(job(own, activationCompression={"batchSize": "Raise", "baseBatchSize": 64}))
