"""What `kompakt doctor` makes of what it read: each fault with its cure, and nothing where all is well."""

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from kompakt_cli import doctor_cluster, doctor_install, doctor_machine, doctor_nodes, doctor_probe, doctor_rights, main
from kompakt_cli.doctor_machine import findings as of_machine
from kompakt_cli.doctor_probe import MachineReading
from kompakt_cli.doctor_reading import AskedRight, ClusterReading, Item, Unread
from kompakt_cli.finding import Finding, Health, counted, document, exit_code
from kompakt_core import contract as c
from kompakt_core.errors import InvalidInput
from kompakt_runtime import config, start
from kompakt_runtime.launch import run as launching
from kompakt_runtime.launch.options import OPTIONS
from tests.support.cli.well_cluster import (
    DEFINITIONS,
    DEPLOYMENTS,
    WELL,
    kube_scheduler,
    lease,
    node,
    part,
    plugin,
    pod,
    topology,
    unwell,
)
from tests.support.client.kubeconfigs import write_kubeconfig

ROOT = Path(__file__).resolve().parents[3]


def test_a_cluster_that_is_well() -> None:
    assert unwell(WELL) == []


def test_under_nvidias_name_that_resource_is_kompakts() -> None:
    named = replace(WELL, nodes=(node(**{c.RESOURCE.replace(".", "_").replace("/", "__"): "0"}, nvidia_com__gpu="8"),))
    assert [one.check for one in unwell(named)] == ["other device plugins", "link graphs"]
    named = replace(named, daemonsets=(plugin("--resource=nvidia.com/gpu"),))
    assert unwell(named) == []
    assert "1 nodes offer nvidia.com/gpu" in {one.found for one in doctor_cluster.findings(named)}


def test_where_kompakt_only_reports_nothing_else_is_missed() -> None:
    explains = part("scheduler", args=["--explain-only=true"])
    needed = doctor_rights.accounts_rights((explains,))
    reporting = replace(
        WELL,
        deployments=(explains,),
        daemonsets=(plugin("--resource=nvidia.com/gpu", "--allocation=report"),),
        leases=(),
        nodes=(node(**{c.RESOURCE.replace(".", "_").replace("/", "__"): "0"}, nvidia_com__gpu="32"),),
        pods=(pod("old", 900, "default-scheduler"),),
        rights=dict.fromkeys((*doctor_rights.own_rights("team", "kompakt-system"), *needed), True),
    )
    assert unwell(reporting) == []
    (silent,) = unwell(replace(reporting, nodes=({**node(), "status": {}},), topologies=()))
    assert (silent.check, silent.health, silent.found) == (
        "GPU nodes",
        Health.WARNING,
        "nobody offers nvidia.com/gpu there: dgx-0",
    )
    assert not [one for one in needed if one.verb == "create"]
    assert any("somebody else hands out GPUs, as nvidia.com/gpu" in one.found for one in doctor_cluster.findings(reporting))


def without(name: str) -> tuple[Item, ...]:
    """The CRDs as an older release had them: a field of TrainingJob's status is missing."""
    older = json.loads(json.dumps(DEFINITIONS))
    for one in older:
        if one["spec"]["names"]["plural"] == c.JOB_PLURAL:
            del one["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"][name]
    return tuple(older)


FAULTS = {
    "Kubernetes too old": (replace(WELL, version="v1.34.2"), "Kubernetes", "problem", "v1.34.2", "kubeVersion"),
    "no operator": (replace(WELL, deployments=DEPLOYMENTS[1:]), "operator", "problem", "no Deployment", "helm upgrade"),
    "half an operator": (
        replace(WELL, deployments=(part("operator", status={"readyReplicas": 1}), DEPLOYMENTS[1])),
        *("operator", "warning", "1 of 2 pods ready", "kubectl describe pod"),
    ),
    "another kube-scheduler": (
        replace(WELL, deployments=(DEPLOYMENTS[0], kube_scheduler("v1.36.0"))),
        *("kube-scheduler", "warning", "v1.36.0", "schedulerImage"),
    ),
    "a kind is missing": (replace(WELL, kinds=WELL.kinds[1:]), "CRDs", "problem", "does not serve", "crds.install=true"),  # type: ignore[index]
    "an older CRD": (
        replace(WELL, definitions=without("lastRestart")),
        *("CRD schemas", "problem", "trainingjobs status.lastRestart", "crds.install=true"),
    ),
    "a stale Lease": (
        replace(WELL, leases=(lease(c.OPERATOR_LEASE, "kompakt-operator-1", 90), WELL.leases[1])),  # type: ignore[index]
        *("Lease kompakt-operator", "problem", "renewed 90 s ago", "kubectl logs"),
    ),
    "a Lease of no pod": (
        replace(WELL, leases=(WELL.leases[0], lease(c.SCHEDULER_LEASE, "stranger_uid", 1))),  # type: ignore[index]
        *("Lease kompakt-scheduler", "warning", "held by stranger_uid", "15 s"),
    ),
    "a Lease of the future": (
        replace(WELL, leases=(lease(c.OPERATOR_LEASE, "kompakt-operator-1", -30), WELL.leases[1])),  # type: ignore[index]
        *("Lease kompakt-operator", "warning", "30 s in the future", "timedatectl"),
    ),
    "no Lease": (replace(WELL, leases=()), "Lease kompakt-operator", "problem", "nobody holds it", "kubectl logs"),
    "this clock is off": (replace(WELL, ahead=-40.0), "clock of this machine", "warning", "40 s behind", "timedatectl"),
    "a silent node": (
        replace(WELL, node_leases=(lease("dgx-0", "dgx-0", 300),)),
        *("node heartbeats", "warning", "dgx-0", "kubectl describe node"),
    ),
    "two device plugins": (
        replace(WELL, nodes=(node(nvidia_com__gpu="8"),)),
        *("other device plugins", "problem", "nvidia.com/gpu beside kompakt.dev/gpu", "devicePlugin.ownGPUs"),
    ),
    "a misspelt label": (
        replace(WELL, nodes=(node(labels={c.LABEL_MACHINE: "box", "kompakt.dev/rak": "a"}),)),
        *("node labels", "warning", "kompakt.dev/rak", "kubectl label node NODE kompakt.dev/rak-"),
    ),
    "an unknown machine": (
        replace(WELL, nodes=(node(labels={c.LABEL_MACHINE: "bx"}),)),
        *("machines", "problem", "dgx-0 (bx)", "devicePlugin.machines"),
    ),
    "no link graph": (replace(WELL, topologies=()), "link graphs", "problem", "has no GPUTopology", "kubectl logs"),
    "a broken link graph": (
        replace(WELL, topologies=(topology(links=[]),)),
        *("link graphs", "problem", "cannot be read: spec", "kubectl delete gputopology dgx-0"),
    ),
    "a stale link graph": (
        replace(WELL, topologies=(topology(nodeUID="before"),)),
        *("link graphs", "problem", "out of step with the Node", "restart of that pod"),
    ),
    "not ready": (
        replace(WELL, topologies=(topology("dgx-0", ("Ready", "False", "BrokenDescription")),)),
        *("link graphs", "problem", "BrokenDescription: said", "devicePlugin.machines"),
    ),
    "an unhealthy GPU": (
        replace(WELL, topologies=(topology("dgx-0", ("Degraded", "True", "ECC")),)),
        *("GPUs", "warning", "ECC: said", "nvidia-smi"),
    ),
    "no CDI specification": (
        replace(WELL, topologies=(topology("dgx-0", ("Degraded", "True", "CDISpecMissing")),)),
        *("container toolkit", "problem", "dgx-0", "nvidia-ctk cdi generate"),
    ),
    "GPUs are shown to others": (
        replace(WELL, topologies=(topology("dgx-0", ("Isolated", "False", "VariableHonoured")),)),
        *("container toolkit", "warning", "shown GPUs of others", "accept-nvidia-visible-devices-envvar-when-unprivileged"),
    ),
    "no device plugin": (
        replace(WELL, nodes=({**node(), "status": {}},), topologies=()),
        *("GPU nodes", "problem", "dgx-0", "devicePlugin.nodeSelector"),
    ),
    "a pod waits": (replace(WELL, pods=(pod("old", 900),)), "pods", "warning", "team/old", "kompakt explain pod old -n team"),
    "another scheduler": (
        replace(WELL, pods=(pod("lost", 1, "default-scheduler"),)),
        *("pods", "warning", "team/lost", "spec.schedulerName: kompakt-scheduler"),
    ),
    "a job is stalled": (
        replace(WELL, jobs=({**pod("job", 9), "status": {"phase": "Pending", "conditions": [
            {"type": "Stalled", "status": "True", "reason": "NameTaken", "message": "a Service"}]}},)),
        *("jobs", "warning", "team/job: NameTaken: a Service", "kubectl describe trainingjob job -n team"),
    ),
    "you may not run jobs": (
        replace(WELL, rights={**WELL.rights, AskedRight("create", c.JOB_PLURAL, c.GROUP, "team"): False}),
        *("your rights", "warning", "cannot run jobs", "kubectl create rolebinding"),
    ),
    "a role is missing": (
        replace(WELL, rights={**WELL.rights, AskedRight("create", "pods", account="kompakt-operator"): False}),
        *("roles of kompakt", "problem", "kompakt-operator may not create pods", "helm upgrade"),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("reading", "check", "health", "found", "cure"), FAULTS.values(), ids=FAULTS)
def test_a_fault_is_named_with_its_cure(reading: ClusterReading, check: str, health: str, found: str, cure: str) -> None:
    told = next(one for one in unwell(reading) if one.check == check)
    assert (told.health, exit_code([told])) == (health, 1 if health == "problem" else 0)
    assert found in told.found
    assert cure in told.cure


def test_what_may_not_be_read_names_the_right() -> None:
    told = unwell(replace(WELL, nodes=Unread("list nodes", "forbidden")))
    assert {one.health for one in told} == {Health.NOT_CHECKED}
    assert all("the right to list nodes" in one.cure for one in told)


def test_where_nothing_is_installed_only_that_is_said() -> None:
    (told,) = unwell(replace(WELL, kinds=(), deployments=()))
    assert "helm install kompakt" in told.cure


def test_gpus_that_are_shared_on_purpose_are_no_problem() -> None:
    shared = topology("dgx-0", ("Conflict", "False", "OwnGPUsOnly"))
    assert unwell(replace(WELL, nodes=(node(nvidia_com__gpu="8"),), topologies=(shared,))) == []


@pytest.mark.parametrize(
    ("argument", "asked"),
    [
        ("--kueue=true", {"workloads"}),
        ("--kueue=false", set()),
        ("--provisioning-class=check-capacity", {"provisioningrequests", "podtemplates"}),
        ("--provisioning-class=", set()),
    ],
)
def test_an_operator_that_works_with_others_is_asked_about_theirs(argument: str, asked: set[str]) -> None:
    def resources(*args: str) -> set[str]:
        return {right.resource for right in doctor_rights.accounts_rights((part("operator", args=list(args)),))}

    assert resources(argument) - resources() == asked


def test_an_operator_of_one_namespace_is_asked_about_that_one() -> None:
    asked = doctor_rights.accounts_rights((part("operator", args=["--namespace=team-a"]),))
    assert {one.namespace for one in asked} == {"team-a"}


def test_versions_are_those_of_chart_and_runtime() -> None:
    bounds = re.findall(r"(\d+)\.(\d+)\.0", (ROOT / "charts/kompakt/Chart.yaml").read_text().partition("kubeVersion")[2])
    oldest, beyond = (tuple(map(int, one)) for one in bounds)
    assert (oldest, (beyond[0], beyond[1] - 1)) == doctor_install.KUBERNETES
    assert doctor_machine.OLDEST_TORCH == start.OLDEST_TORCH
    assert doctor_probe.OFF == config.ENV_OFF
    assert next(option.default for option in OPTIONS if option.name == "--mode") == doctor_probe.MODE


TRAINS = MachineReading(
    "python",
    {"python": "3.12.1", "torch": "2.15.0+cu132", "built_for": "13.2", "session": True, "triton": "3.9.0", "gpus": ["H100"],
     "unpacked": "", "capabilities": [["a", True, "x"]]},
    said=("kompakt: activation compression ErrorBounded, target 0.01",),
    driver=("580.65.06, NVIDIA H100",),
    compiler="/usr/bin/gcc",
    shm_bytes=8 << 30,
)  # fmt: skip


def told(**python: Any) -> MachineReading:
    return replace(TRAINS, python={**TRAINS.python, **python})


MACHINE_FAULTS = {
    "no Python": (replace(TRAINS, python={}, failed="ended with code 1: no"), "Python", "problem", "--python"),
    "no torch": (told(torch=""), "PyTorch", "warning", "pip install torch"),
    "broken torch": (told(torch="", broken="OSError('libcudart')"), "PyTorch", "problem", "--force-reinstall"),
    "old torch": (told(torch="2.3.1"), "PyTorch", "problem", "torch>=2.4"),
    "no runtime": (replace(TRAINS, hook=False), "kompakt run", "warning", "pip install ./runtime"),
    "switched off": (replace(TRAINS, off="1"), "kompakt run", "warning", "unset KOMPAKT_OFF"),
    "no session": (told(session=False), "kompakt run", "problem", "torch>=2.4"),
    "no hook": (replace(told(session=False), said=()), "kompakt run", "problem", "without -S"),
    "less of torch": (told(capabilities=[["a", False, "b is done"]]), "capabilities", "warning", "--upgrade torch"),
    "no driver": (replace(TRAINS, driver=(), no_driver="no nvidia-smi"), "NVIDIA driver", "warning", "install NVIDIA's driver"),
    "no GPU for torch": (told(gpus=[], unpacked=None), "GPU", "problem", "CUDA_VISIBLE_DEVICES"),
    "nothing packed": (told(unpacked="NoCompiler"), "GPU", "problem", "apt install gcc"),
    "no Triton": (told(triton=""), "Triton", "problem", "pip install triton"),
    "no compiler": (replace(TRAINS, compiler=""), "Triton", "problem", "set CC"),
    "small shm": (replace(TRAINS, shm_bytes=64 << 20), "/dev/shm", "warning", "sharedMemory"),
    "no shm": (replace(TRAINS, shm_bytes=None), "/dev/shm", "warning", "num_workers=0"),
}


def test_a_machine_that_is_well() -> None:
    assert {one.health for one in of_machine(TRAINS)} == {Health.OK}


@pytest.mark.parametrize(("reading", "check", "health", "cure"), MACHINE_FAULTS.values(), ids=MACHINE_FAULTS)
def test_what_a_machine_lacks(reading: MachineReading, check: str, health: str, cure: str) -> None:
    found = next(one for one in of_machine(reading) if one.check == check)
    assert found.health == health
    assert cure in found.cure


def test_this_machine_is_read_by_the_python_that_is_named() -> None:
    found = doctor_probe.read(sys.executable)
    assert found.python["python"] == sys.version.split()[0]
    assert found.hook
    assert launching.PACKAGE.is_dir()
    with pytest.raises(InvalidInput, match="--python: there is no program nowhere"):
        doctor_probe.read("nowhere")


def ask(*words: str, **environment: str) -> Result:
    env = {"COLUMNS": "200", "KUBECONFIG": "", "KUBERNETES_SERVICE_HOST": "", **environment}
    return CliRunner(env=env).invoke(main.application(), ["doctor", *words, f"--python={sys.executable}"])


def test_without_a_cluster_both_say_so_and_go_on(tmp_path: Path) -> None:
    done = ask("-o", "json", HOME=str(tmp_path))
    rows = json.loads(done.stdout)["findings"]
    assert [(one["check"], one["health"]) for one in rows if one["subject"] == "cluster"] == [("cluster", "not checked")]
    assert any(one["subject"] == "machine" for one in rows)
    assert isinstance(ask("cluster", HOME=str(tmp_path)).exception, InvalidInput)


def test_a_cluster_that_does_not_answer_is_a_problem(tmp_path: Path) -> None:
    path = write_kubeconfig(tmp_path / "config", "http://127.0.0.1:1")
    done = ask(HOME=str(tmp_path), KUBECONFIG=str(path))
    assert done.exit_code == 1
    assert "cannot be reached" in done.stdout
    assert isinstance(ask("cluster", KUBECONFIG=str(path)).exception, InvalidInput)


def test_counts_and_document() -> None:
    found = [Finding("a", Health.OK, "x"), Finding("b", Health.PROBLEM, "y", "z"), Finding("c", Health.PROBLEM, "y", "z")]
    assert counted(found) == "2 problems, 1 ok"
    assert document([("cluster", found)])["counts"] == {"ok": 1, "not checked": 0, "warning": 0, "problem": 2}


def test_help_of_kompakt_imports_nothing_of_it() -> None:
    code = "import sys; from kompakt_cli.main import application; from typer.testing import CliRunner\n"
    code += "print(CliRunner().invoke(application(), ['--help']).stdout, [m for m in sys.modules if 'doctor' in m])"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "Check a cluster and this machine" in shown
    assert shown.rstrip().endswith("[]")


def test_every_reason_has_its_cure() -> None:
    assert all(re.search(r"[a-zA-Z]+\.[a-zA-Z]+|nvidia-ctk|kubectl", cure) for cure in doctor_nodes.CURES.values())
