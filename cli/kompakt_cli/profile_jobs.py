"""Measured runs as TrainingJobs in a cluster: the job's own pod template, a few steps on GPUs of one machine, then it ends.

The start-up hook that every worker has anyway times the steps and leaves the figures in the pod's termination message.
"""

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Final

import yaml

from kompakt_cli.profile_manifest import MODES, Document, Steps, container_of, run_document
from kompakt_core import contract
from kompakt_core.errors import InvalidInput
from kompakt_core.job.reports import read_report
from kompakt_core.placement.model import Reason
from kompakt_core.profile.document import Profile, Run, read_run

PAUSE_S: Final = 1.0
LAST_LINES: Final = 15
NOT_HERE: Final = (
    "in a cluster nothing is known of page caches and of two half machines: what the run on real data read may have come from "
    "the disk, and the network stall was not measured"
)
# Fields of the start-up hook's last words -> those of a run (the runtime repeats them; a contract test compares).
FIELDS: Final = {
    "stepSeconds": "step_seconds",
    "parts": "parts",
    "dataSeconds": "data_seconds",
    "loaders": "loaders",
    "gradientBytes": "gradient_bytes",
    "ranks": "ranks",
}


class Cluster:
    """Where the runs are made, with the rights of a kubeconfig: TrainingJobs, and the pods that they make."""

    def __init__(self, kubeconfig: str | None, context: str | None, namespace: str | None) -> None:
        """Raises InvalidInput where no kubeconfig can be used."""
        from kubernetes import client, config  # half a second: not for runs on this machine

        try:
            api = config.new_client_from_config(config_file=kubeconfig, context=context)
            _, active = config.list_kube_config_contexts(config_file=kubeconfig)
        except (config.ConfigException, yaml.YAMLError, OSError, ValueError, TypeError, KeyError) as error:
            raise InvalidInput(f"no usable kubeconfig: {error}; name one with --kubeconfig or KUBECONFIG") from None
        self.namespace = namespace or str((active or {}).get("context", {}).get("namespace") or "default")
        self._jobs, self._core = client.CustomObjectsApi(api), client.CoreV1Api(api)
        self._at = {
            "group": contract.GROUP,
            "version": contract.VERSION,
            "namespace": self.namespace,
            "plural": contract.JOB_PLURAL,
        }

    @contextmanager
    def running(self, document: Document) -> Iterator[str]:
        """The job exists meanwhile, and is deleted however this ends; gives its name."""
        name = document["metadata"]["name"]
        self._call(lambda: self._jobs.create_namespaced_custom_object(**self._at, body=document))
        try:
            yield name
        finally:
            self._call(lambda: self._jobs.delete_namespaced_custom_object(**self._at, name=name))

    def status(self, name: str) -> Document:
        found = self._call(lambda: self._jobs.get_namespaced_custom_object(**self._at, name=name))
        return dict(found.get("status") or {})

    def last_words(self, name: str) -> str:
        """The termination message of the job's worker; empty without one."""
        for pod in self._pods(name):
            for one in pod.status.container_statuses or ():
                ended = one.state.terminated
                if ended is not None and ended.message:
                    return str(ended.message)
        return ""

    def last_lines(self, name: str, container: str) -> list[str]:
        """What the worker printed last, as far as its node tells."""
        from kubernetes.client.exceptions import ApiException

        lines: list[str] = []
        for pod in self._pods(name):
            with suppress(ApiException):
                at = {"name": pod.metadata.name, "namespace": self.namespace, "container": container}
                lines += str(self._core.read_namespaced_pod_log(**at, tail_lines=LAST_LINES)).splitlines()
        return lines[-LAST_LINES:]

    def _pods(self, name: str) -> list[Any]:
        label = f"{contract.LABEL_JOB_NAME}={name}"
        return list(self._call(lambda: self._core.list_namespaced_pod(self.namespace, label_selector=label)).items)

    @staticmethod
    def _call(ask: Callable[[], Any]) -> Any:
        from kubernetes.client.exceptions import ApiException
        from urllib3.exceptions import HTTPError

        try:
            return ask()
        except ApiException as error:
            raise InvalidInput(f"the API server: {error.status} {error.reason}; {str(error.body)[:300]}") from None
        except (HTTPError, OSError) as error:
            raise InvalidInput(f"the API server cannot be reached: {error}") from None


def profile_job(cluster: Cluster, document: Document, devices: int, plan: Steps, machine: str) -> Profile:
    """All runs, one after the other. Raises InvalidInput that says which run went wrong, and why."""
    runs, nodes = {}, ""
    for mode in MODES if devices > 1 else [mode for mode in MODES if mode != "one"]:
        gpus = 1 if mode == "one" else devices
        runs[mode], nodes = _measured(cluster, run_document(document, mode, gpus, plan), gpus, plan)
    return Profile(machine or nodes or "the cluster", devices, "GPU", plan.warm_up, plan.steps, runs, (NOT_HERE,))


def _measured(cluster: Cluster, document: Document, gpus: int, plan: Steps) -> tuple[Run, str]:
    with cluster.running(document) as name:
        print(f"kompakt: TrainingJob {cluster.namespace}/{name} on {gpus} GPUs ...", file=sys.stderr, flush=True)
        status = _ended(cluster, name, plan.limit_s)
        said = (read_report(cluster.last_words(name)) or {}).get("run")
        if not isinstance(said, dict) or said.get("processes") != gpus:
            container = container_of(document["spec"]["roles"][0])["name"]
            raise InvalidInput(_why(name, status, said, gpus, plan, cluster.last_lines(name, container)))
        figures = {field: said.get(name) for name, field in FIELDS.items()}
        return read_run(figures, f"what {name} left"), str(status.get("nodes") or "")


def _ended(cluster: Cluster, name: str, limit_s: float) -> Document:
    until = time.monotonic() + limit_s
    while (status := cluster.status(name)).get("phase") not in ("Succeeded", "Failed"):
        scheduling = status.get("scheduling") or {}
        why = scheduling.get("message", "")
        if scheduling.get("reason") == Reason.NEVER_FITS:
            raise InvalidInput(f"{name}: {why}")
        if time.monotonic() > until:
            phase = status.get("phase") or "not seen by an operator"
            raise InvalidInput(f"{name}: {phase} after {limit_s:g} s{': ' if why else ''}{why}; give a longer --timeout")
        time.sleep(PAUSE_S)
    return status


def _why(name: str, status: Mapping[str, Any], said: object, gpus: int, plan: Steps, lines: list[str]) -> str:
    needed, last = plan.warm_up + plan.steps, "".join(f"\n  | {line}" for line in lines)
    if not isinstance(said, dict):
        failed = [one for one in status.get("conditions") or () if (one["type"], one["status"]) == ("Failed", "True")]
        why = f"{failed[0]['reason']}: {failed[0]['message']}" if failed else "the start-up hook left no word"
        return f"{name}: {why}{last}"
    if said.get("processes"):
        return (
            f"{name}: {said['processes']} processes took the steps on {gpus} GPUs; let torchrun read PET_NPROC_PER_NODE, which "
            f"kompakt sets, rather than --nproc-per-node{last}"
        )
    return f"{name}: the script ended after {said.get('steps', 0)} optimizer steps; {needed} are needed{last}"
