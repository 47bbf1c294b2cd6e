"""GPUs by CDI under containerd 2 on a real node: a pod sees exactly its set, whatever it, its image or its handler says.

In a container two things count: which device files are there, and which it may open if it makes them itself.
"""

import json
import shutil

import pytest

from kompakt_core.contract import ANN_GPU_INDICES, ANN_GPUS, RESOURCE, SCHEDULER_NAME
from tests.support.node.gpu_machine import CONTROL, MAJOR, PLUGIN, cuda_recipe, gpu_machine
from tools.kube.command import CommandFailed
from tools.kube.kubectl import await_state

LOOK = f"""
import errno, json, os, stat
may = []
for minor in [*range(8), {CONTROL}]:
    path = f"/tmp/made-{{minor}}"
    os.path.exists(path) or os.mknod(path, 0o600 | stat.S_IFCHR, os.makedev({MAJOR}, minor))
    try:
        os.close(os.open(path, os.O_RDWR))
    except OSError as error:
        if error.errno == errno.EPERM:
            continue
        assert error.errno == errno.ENXIO, error
    may.append(minor)
files = sorted(name for name in os.listdir("/dev") if name.startswith("nvidia"))
print(json.dumps({{"files": files, "may": may, "env": dict(os.environ)}}))
"""
HANDLERS = ("nvidia-open", "nvidia-shut")
ALL = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}
KIND = "nvidia.com/gpu"
WAYS = {
    "says nothing": {},
    "variable": {"env": [ALL]},
    "variable names CDI devices": {"env": [{**ALL, "value": f"{KIND}=all"}]},
    "annotation": {"annotations": {"cdi.k8s.io/mine": f"{KIND}=all"}},
    "names of mounts": {"mounts": ("/var/run/nvidia-container-devices/all", "/var/run/nvidia-container-devices/0")},
    "names of mounts by CDI": {"mounts": (f"/var/run/nvidia-container-devices/cdi/{KIND}/all",)},
}
"""What a tenant may write into a pod of any Pod Security level."""


@pytest.fixture(scope="module")
def machine(kompakt):
    """With a RuntimeClass for each of its handlers."""
    if shutil.which("gcc") is None:
        pytest.skip("no C compiler (gcc) to build NVIDIA's container runtime and the stand-in for the driver's library")
    with gpu_machine(kompakt) as one:
        for name in HANDLERS:
            found = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": name}, "handler": name}
            kompakt.kubectl.apply(json.dumps(found))
        yield one
        kompakt.kubectl("delete", "runtimeclass", *HANDLERS)


def pod(
    machine, name, gpus=1, *, image=None, handler=None, env=(), annotations=None, mounts=(), security=None, script=LOOK, **more
):
    volumes = [{"name": f"v{number}", "emptyDir": {}} for number, _ in enumerate(mounts)]
    container = {
        "name": "main",
        "image": image or machine.world.images.names["pause"],
        "imagePullPolicy": "IfNotPresent",
        "command": ["python3", "-c", script],
        "env": list(env),
        "securityContext": {"runAsUser": 0, **(security or {})},
        "resources": {"limits": {RESOURCE: str(gpus)} if gpus else {}, "requests": {"cpu": "1m"}},
        "volumeMounts": [{"name": f"v{number}", "mountPath": path} for number, path in enumerate(mounts)],
    }
    spec = {
        "schedulerName": SCHEDULER_NAME if gpus else "default-scheduler",
        "nodeSelector": {"kubernetes.io/hostname": machine.node.name},
        "containers": [container],
        "volumes": volumes,
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 1,
        **({"runtimeClassName": handler} if handler else {}),
        **more,
    }
    meta = {"name": name, "labels": {"app": "cdi"}, "annotations": annotations or {}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


@pytest.fixture
def run(machine):
    """Makes pods, waits for their ends, and answers what each saw, by name, with its GPUs' indices and UUIDs."""
    kubectl = machine.world.kubectl

    def ended():
        return [one["status"].get("phase") for one in kubectl.items("pods", "--selector=app=cdi")]

    def go(*pods):
        kubectl.apply(json.dumps({"apiVersion": "v1", "kind": "List", "items": list(pods)}))
        await_state(lambda: all(phase in ("Succeeded", "Failed") for phase in ended()), "the pods' ends", 120)
        return {one["metadata"]["name"]: seen(one) for one in kubectl.items("pods", "--selector=app=cdi")}

    def seen(one):
        said = kubectl("logs", one["metadata"]["name"])
        assert one["status"]["phase"] == "Succeeded", (one["status"], said)
        notes = one["metadata"].get("annotations", {})
        indices = tuple(int(number) for number in notes.get(ANN_GPU_INDICES, "").split(",") if number)
        return {**json.loads(said), "indices": indices, "uuids": notes.get(ANN_GPUS, "")}

    yield go
    kubectl("delete", "pods", "--selector=app=cdi", "--now", "--wait")


def exactly(seen, indices):
    """Whether a container has the files of these GPUs, and may open no others."""
    files = sorted([f"nvidia{number}" for number in indices] + ["nvidiactl"]) if indices else []
    return seen["files"] == files and seen["may"] == ([*sorted(indices), CONTROL] if indices else [])


def test_each_pod_sees_exactly_the_gpus_that_were_chosen_for_it(run, machine):
    seen = run(*(pod(machine, f"pod-{gpus}", gpus) for gpus in (1, 2, 4)))
    assert [len(one["indices"]) for one in seen.values()] == [1, 2, 4]
    for one in seen.values():
        assert exactly(one, one["indices"]), one
        assert one["env"]["CUDA_VISIBLE_DEVICES"] == one["uuids"]
        assert one["env"]["NVIDIA_VISIBLE_DEVICES"] == "void"


@pytest.fixture(scope="module")
def cuda(machine):
    """An image that asks for all GPUs."""
    return machine.load(cuda_recipe())


def test_an_image_that_asks_for_all_gpus_gets_those_of_its_pod(run, machine, cuda):
    seen = run(
        *(pod(machine, f"cuda-{handler or 'runc'}", image=cuda, handler=handler) for handler in (None, *HANDLERS)),
        *(pod(machine, f"none-{handler}", 0, image=cuda, handler=handler) for handler in HANDLERS),
    )
    with_gpus = [one for name, one in seen.items() if name.startswith("cuda-")]
    assert [len(one["indices"]) for one in with_gpus] == [1, 1, 1]
    assert all(exactly(one, one["indices"]) for one in with_gpus), with_gpus
    assert exactly(seen["none-nvidia-shut"], ())
    assert exactly(seen["none-nvidia-open"], range(8)), "the image does ask"


@pytest.mark.parametrize("handler", [None, *HANDLERS])
def test_no_way_of_asking_widens_what_a_pod_was_given(run, machine, handler):
    seen = run(*(pod(machine, f"way-{n}", handler=handler, **way) for n, way in enumerate(WAYS.values())))
    assert len(seen) == len(WAYS)
    wrong = {way: one for way, one in zip(WAYS, seen.values(), strict=True) if not exactly(one, one["indices"])}
    assert not wrong
    assert {len(one["indices"]) for one in seen.values()} == {1}


def test_a_pod_without_gpus_sees_none_but_where_nvidias_runtime_takes_the_variable_from_anybody(run, machine):
    """Nothing of ours stands between such a pod and that runtime: who has it must have it refuse (docs/security.md)."""
    seen = run(*(pod(machine, f"none-{handler or 'runc'}", 0, handler=handler, env=[ALL]) for handler in (None, *HANDLERS)))
    assert exactly(seen["none-runc"], ())
    assert exactly(seen["none-nvidia-shut"], ())
    assert exactly(seen["none-nvidia-open"], range(8)), "the hole is the runtime's; without it this test shows nothing"


WAYS_OF_THE_TRUSTED = {
    "files of the host": ("hostPath", {"volumes": [{"name": "dev", "hostPath": {"path": "/dev"}}]}),
    "names of mounts by the host's null": ("hostPath", {"volumes": [{"name": "null", "hostPath": {"path": "/dev/null"}}]}),
    "privileged": ("privileged=true", {"security": {"privileged": True}}),
}


@pytest.mark.parametrize("level", ["baseline", "restricted"])
def test_what_would_reach_past_cdi_is_refused_by_pod_security(machine, level):
    kubectl = machine.world.kubectl
    labels = {"pod-security.kubernetes.io/enforce": level}
    kubectl.apply(json.dumps({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": level, "labels": labels}}))
    for word, way in WAYS_OF_THE_TRUSTED.values():
        found = pod(machine, "trusted", **way)
        found["metadata"]["namespace"] = level
        with pytest.raises(CommandFailed, match=f"violates PodSecurity.*{word}"):
            kubectl.apply(json.dumps(found))
    kubectl("delete", "namespace", level, "--wait=false")


def test_what_pod_security_must_refuse_does_reach_past_cdi(run, machine):
    """In a namespace of level privileged, to show that the refusal is what counts."""
    null = {"name": "v0", "hostPath": {"path": "/dev/null"}}
    named = pod(machine, "null", handler="nvidia-shut", mounts=["/var/run/nvidia-container-devices/all"])
    named["spec"]["volumes"] = [null]
    seen = run(named, pod(machine, "privileged", security={"privileged": True}))
    assert exactly(seen["null"], range(8))
    assert seen["privileged"]["may"] == [*range(8), CONTROL]


def test_an_ephemeral_container_sees_no_gpu_although_it_asks_for_all(machine):
    kubectl = machine.world.kubectl
    kubectl.apply(json.dumps(pod(machine, "host-of-one", 2, script="import time; time.sleep(600)")))
    kubectl("wait", "--for=condition=Ready", "pod/host-of-one", "--timeout=60s")
    container = {**pod(machine, "x", 0, env=[ALL])["spec"]["containers"][0], "name": "one"}
    del container["resources"]
    patch = json.dumps({"spec": {"ephemeralContainers": [container]}})
    kubectl("patch", "pod", "host-of-one", "--subresource=ephemeralcontainers", "--type=strategic", f"--patch={patch}")
    await_state(lambda: kubectl("logs", "host-of-one", "--container=one").strip(), "what it saw", 60)
    assert exactly(json.loads(kubectl("logs", "host-of-one", "--container=one")), ())
    kubectl("delete", "pod", "host-of-one", "--now")


def test_a_gpu_whose_specification_is_taken_away_is_given_to_nobody_until_it_is_back(run, machine):
    kubectl, name = machine.world.kubectl, machine.node.name

    def topology():
        return kubectl.get("gputopology", name)["status"]

    def reasons():
        return {one["type"]: one["reason"] for one in topology()["conditions"]}

    machine.specify(machine.gpus[:6])
    await_state(lambda: (topology()["free"], reasons()["Degraded"]) == (6, "CDISpecMissing"), "six GPUs", 30)
    (seen,) = run(pod(machine, "six", 6)).values()
    assert exactly(seen, range(6))
    machine.specify(())
    await_state(lambda: reasons()["Ready"] == "CDISpecMissing", "no GPU offered", 30)
    events = kubectl.items("events", "--field-selector=involvedObject.kind=Node,reason=CDISpecMissing")
    assert {one["involvedObject"]["name"] for one in events} == {name}
    machine.specify(machine.gpus)
    await_state(lambda: topology()["free"] == 8, "all GPUs", 30)


def test_the_plugin_reaches_the_driver_without_nvidias_variable(machine):
    """It reads the GPUs by the library in the host's folder, under runc, and answers for all of them."""
    found = machine.world.kubectl.items("pods", "--namespace=kompakt-system", f"--selector=app={PLUGIN}")
    plugin = found[0]["spec"]["containers"][0]
    assert not [variable for variable in plugin["env"] if variable["name"].startswith("NVIDIA_")]
    topology = machine.world.kubectl.get("gputopology", machine.node.name)["spec"]
    assert (topology["source"], [gpu["uuid"] for gpu in topology["gpus"]]) == ("nvml", list(machine.gpus))


def test_a_strict_node_offers_gpus_only_under_a_handler_that_refuses_the_variable(machine):
    """The plugin's pod has the handler that it finds out about; the toolkit's configuration stands for all others."""
    kubectl, name = machine.world.kubectl, machine.node.name

    def told():
        status = kubectl.get("gputopology", name)["status"]
        found = {one["type"]: (one["status"], one["reason"]) for one in status["conditions"]}
        return found["Isolated"], found["Ready"][0], status["free"]

    def under(handler):
        spec = {"template": {"spec": {"runtimeClassName": handler}}}
        kubectl("patch", "daemonset", PLUGIN, "--namespace=kompakt-system", f"--patch={json.dumps({'spec': spec})}")

    isolated = (("True", "VariableRefused"), "True", 8)
    await_state(lambda: told() == isolated, "isolated under runc", 60)
    under("nvidia-open")
    await_state(lambda: told() == (("False", "VariableHonoured"), "False", 0), "no GPU offered", 120)
    events = kubectl.items("events", "--field-selector=involvedObject.kind=Node,reason=VariableHonoured")
    assert {one["involvedObject"]["name"] for one in events} == {name}
    assert "is shown nvidia0, nvidia1" in events[0]["message"]
    under("nvidia-shut")
    await_state(lambda: told() == isolated, "isolated where NVIDIA's runtime refuses", 120)
    config = machine.node.home / "etc-toolkit" / "config.toml"
    config.write_text("")
    await_state(lambda: told()[1:] == ("False", 0), "no GPU offered for the sake of other handlers", 60)
    config.write_text("accept-nvidia-visible-devices-envvar-when-unprivileged = false\n")
    await_state(lambda: told() == isolated, "isolated again", 60)
    under(None)
