"""Flags and environment of the operator process, read once into a frozen value."""

import argparse
import os
import re
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kompakt_core import contract
from kompakt_core.errors import InvalidInput

LEVELS: Final = ("DEBUG", "INFO", "WARNING", "ERROR")
ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", re.ASCII)
OBJECT_NAME: Final = re.compile(r"(?=.{1,253}$)[a-z0-9]([-.a-z0-9]*[a-z0-9])?", re.ASCII)


@dataclass(frozen=True, slots=True)
class OperatorConfig:
    """`namespace` "": all; `kubeconfig` "": the pod's own account; `health_port` 0: no endpoint; `progress_seconds` 0: never.

    `keep_nodes`: workers tell autoscalers to leave their nodes alone. `plain_metrics`: figures are for whoever reaches the port.
    `planner_patience`: how many seconds a job without pods waits for the planner's first answer; 0: pods are created at once.
    `watch_patience`: how many seconds a watch may take to show what the API server has. `runtime_pull_secrets`: names.
    `resource`: by which name workers ask for GPUs. `kueue`: jobs that name a queue wait for Kueue's admission.
    `claims_scheduler`: the scheduler of workers that get their GPUs by ResourceClaims; "": by a device plugin.
    `provisioning_class`: of the ProvisioningRequests that are made for gangs that fit on no node; "": none are made.
    `ask_for_nodes_after`: for how many seconds a gang that could fit must have found no room until nodes are asked for; 0: never.
    """

    runtime_image: str
    lease_namespace: str
    identity: str
    namespace: str = ""
    kubeconfig: str = ""
    health_port: int = 0
    progress_seconds: int = 30
    keep_nodes: bool = True
    plain_metrics: bool = False
    planner_patience: int = 30
    watch_patience: int = 180
    log_level: str = "INFO"
    runtime_pull_secrets: tuple[str, ...] = ()
    resource: str = contract.RESOURCE
    kueue: bool = False
    claims_scheduler: str = ""
    provisioning_class: str = ""
    ask_for_nodes_after: int = 0


def read_config(arguments: Sequence[str], environment: Mapping[str, str]) -> OperatorConfig:
    """Flags win over KOMPAKT_OPERATOR_* variables (--runtime-image: KOMPAKT_OPERATOR_RUNTIME_IMAGE, and so on).

    Raises InvalidInput naming the flag.
    """
    given = parser(environment).parse_args(arguments)
    if not given.runtime_image:
        raise InvalidInput("--runtime-image: needed: the image whose init container carries the runtime into workers")
    for flag in ("namespace", "lease_namespace"):
        text = getattr(given, flag)
        if text and (len(text) > 63 or not NAME.fullmatch(text)):
            raise InvalidInput(f"--{flag.replace('_', '-')}: {text!r} is no namespace's name")
    secrets = tuple(filter(None, given.runtime_pull_secrets.split(",")))
    for name in secrets:
        if not OBJECT_NAME.fullmatch(name):
            raise InvalidInput(f"--runtime-pull-secrets: {name!r} is no Secret's name")
    if not given.health_port.isdecimal() or int(given.health_port) > 65535:
        raise InvalidInput(f"--health-port: a port from 1 to 65535, or 0 for none; got {given.health_port!r}")
    if not given.progress_seconds.isdecimal() or int(given.progress_seconds) > 3600:
        raise InvalidInput(f"--progress-seconds: whole seconds up to 3600, or 0 for never; got {given.progress_seconds!r}")
    if not given.watch_patience.isdecimal() or not 10 <= int(given.watch_patience) <= 3600:
        raise InvalidInput(f"--watch-patience: whole seconds from 10 to 3600; got {given.watch_patience!r}")
    if not given.planner_patience.isdecimal() or int(given.planner_patience) > 3600:
        raise InvalidInput(f"--planner-patience: whole seconds up to 3600, or 0 for none; got {given.planner_patience!r}")
    for flag in ("keep_nodes", "plain_metrics", "kueue"):
        if getattr(given, flag) not in ("true", "false"):
            raise InvalidInput(f"--{flag.replace('_', '-')}: true or false; got {getattr(given, flag)!r}")
    if given.resource not in contract.RESOURCES:
        raise InvalidInput(f"--resource: one of {', '.join(contract.RESOURCES)}; got {given.resource!r}")
    if given.claims_scheduler and not OBJECT_NAME.fullmatch(given.claims_scheduler):
        raise InvalidInput(f"--claims-scheduler: {given.claims_scheduler!r} is no scheduler's name")
    if given.provisioning_class and not OBJECT_NAME.fullmatch(given.provisioning_class):
        raise InvalidInput(f"--provisioning-class: {given.provisioning_class!r} is no name of a provisioning class")
    if not given.ask_for_nodes_after.isdecimal() or int(given.ask_for_nodes_after) > 604800:
        raise InvalidInput(f"--ask-for-nodes-after: whole seconds up to 604800, or 0; got {given.ask_for_nodes_after!r}")
    if given.log_level not in LEVELS:
        raise InvalidInput(f"--log-level: one of {', '.join(LEVELS)}; got {given.log_level!r}")
    return OperatorConfig(
        runtime_image=given.runtime_image,
        lease_namespace=given.lease_namespace or _own_namespace() or "default",
        identity=given.identity or socket.gethostname(),
        namespace=given.namespace,
        kubeconfig=_kubeconfig(given.kubeconfig, environment),
        health_port=int(given.health_port),
        progress_seconds=int(given.progress_seconds),
        keep_nodes=given.keep_nodes == "true",
        plain_metrics=given.plain_metrics == "true",
        planner_patience=int(given.planner_patience),
        watch_patience=int(given.watch_patience),
        log_level=given.log_level,
        runtime_pull_secrets=secrets,
        resource=given.resource,
        kueue=given.kueue == "true",
        claims_scheduler=given.claims_scheduler,
        provisioning_class=given.provisioning_class,
        ask_for_nodes_after=int(given.ask_for_nodes_after),
    )


def parser(environment: Mapping[str, str]) -> argparse.ArgumentParser:
    """The command line; each option's default may come from a variable of the environment."""
    made = argparse.ArgumentParser(prog="kompakt-operator", description="Runs TrainingJobs.")

    def flag(name: str, default: str, help_: str) -> None:
        variable = "KOMPAKT_OPERATOR_" + name[2:].upper().replace("-", "_")
        made.add_argument(name, default=environment.get(variable, default), help=f"{help_} [{variable}]")

    flag("--runtime-image", "", "image whose init container carries the runtime into workers")
    flag("--runtime-pull-secrets", "", "Secrets, by comma, that workers name to pull it; they must exist in the jobs' namespaces")
    flag("--namespace", "", "look after TrainingJobs of this namespace only; default: all")
    flag("--lease-namespace", "", "where the Lease of the active operator lies; default: the pod's own namespace")
    flag("--identity", "", "name of this process in the Lease; default: the host's name")
    flag("--kubeconfig", "", "file; default: the pod's own account, else $KUBECONFIG")
    flag("--health-port", "0", "port of /healthz, /readyz and /metrics; 0: none")
    flag("--progress-seconds", "30", "how often rank 0 of each running job is asked how far it is; 0: never")
    flag("--keep-nodes", "true", "whether workers are annotated so that autoscalers leave their nodes alone")
    flag("--plain-metrics", "false", "whether /metrics answers without a token whose account may get it")
    flag(
        "--planner-patience",
        "30",
        "seconds until the pods of a job are created though the planner has not said anything of it; 0: they are created at once",
    )
    flag("--resource", contract.RESOURCE, "by which name workers ask for GPUs: the one that the device plugin registers")
    flag(
        "--claims-scheduler",
        "",
        "name of the scheduler that serves ResourceClaims: workers get their GPUs by these; default: by a device plugin",
    )
    flag("--kueue", "false", "whether jobs with the label kueue.x-k8s.io/queue-name wait until Kueue has admitted them")
    flag(
        "--provisioning-class",
        "",
        "class of the ProvisioningRequests by which cluster-autoscaler is asked for nodes for gangs that fit on none; default: "
        "none are made",
    )
    flag(
        "--ask-for-nodes-after",
        "0",
        "for how many seconds a gang that could fit must have found no room until nodes are asked for; 0: only for gangs that no "
        "present node could ever hold",
    )
    flag("--watch-patience", "180", "seconds until a watch that does not show what the API server has counts as stuck")
    flag("--log-level", "INFO", f"how much to say: {', '.join(LEVELS)}")
    return made


def _own_namespace() -> str:
    file = ACCOUNT / "namespace"
    return file.read_text().strip() if file.exists() else ""


def _kubeconfig(given: str, environment: Mapping[str, str]) -> str:
    if given:
        if "\0" in given or not os.access(given, os.R_OK):
            raise InvalidInput(f"--kubeconfig: cannot read {given!r}")
        return given
    if (ACCOUNT / "token").exists():
        return ""
    found = environment.get("KUBECONFIG", "")
    if not found:
        raise InvalidInput("--kubeconfig: needed outside a cluster (or set KUBECONFIG)")
    return found
