"""Measured runs as TrainingJobs in a cluster: the job's own pod template, a few steps on GPUs of one machine (or halves of two).

The start-up hook that every worker has anyway times the steps and leaves the figures in the pod's termination message.
"""

import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

from kompakt_cli.access import jobs_of
from kompakt_cli.profile_document import UNTOLD, cold_note, told_run
from kompakt_cli.profile_manifest import Document, StepLimits, container_of, run_document
from kompakt_core import contract
from kompakt_core.contract.conditions import Type, read_conditions
from kompakt_core.contract.job_owner import JobOwner
from kompakt_core.errors import InvalidInput
from kompakt_core.job.reports import read_report
from kompakt_core.placement.model import Reason
from kompakt_core.profile.document import Profile, ProfiledRun, slowest

PAUSE_S: Final = 1.0
LAST_LINES: Final = 15
LAST_WORDS_S: Final = 30.0  # for all pods to end once their job has


class ProfilingCluster:
    """Where the runs are made, with the rights of a kubeconfig: TrainingJobs, and the pods that they make."""

    def __init__(self, kubeconfig: str | None, context: str | None, namespace: str | None) -> None:
        """Raises InvalidInput where no kubeconfig can be used."""
        self._jobs = jobs_of(kubeconfig, context, namespace)
        self.namespace = self._jobs.namespace
        self._made: dict[str, JobOwner] = {}  # the jobs made here, by name

    @contextmanager
    def running(self, document: Document) -> Iterator[str]:
        """The job exists meanwhile, and is deleted however this ends; gives its name."""
        name = document["metadata"]["name"]
        uid = self._jobs.create(document)["metadata"]["uid"]
        self._made[name] = JobOwner(self.namespace, name, uid)
        try:
            yield name
        finally:
            self._jobs.delete(name, uid)

    def annotate(self, name: str, profile: str) -> None:
        """Hand a profile to the TrainingJob of that name, which counts from its next attempt on."""
        self._jobs.annotate(name, contract.ANN_PROFILE, profile)

    def status(self, name: str) -> Document:
        return dict(self._jobs.get(name).get("status") or {})

    def last_words(self, name: str) -> list[str]:
        """The termination messages of the job's workers that left one."""
        statuses = (one for pod in self._workers(name) for one in (pod.get("status") or {}).get("containerStatuses") or ())
        ended = ((one.get("state") or {}).get("terminated") or {} for one in statuses)
        return [str(one["message"]) for one in ended if one.get("message")]

    def nodes(self, name: str) -> tuple[str, ...]:
        """Where the job's workers sit."""
        return tuple(sorted(str(pod["spec"].get("nodeName")) for pod in self._workers(name)))

    def last_lines(self, name: str, container: str) -> list[str]:
        """What the worker printed last, as far as its node tells."""
        from kompakt_client.errors import ApiError

        lines: list[bytes] = []
        query: dict[str, str | int] = {"container": container, "tailLines": LAST_LINES}
        for pod in self._workers(name):
            with suppress(ApiError):
                for batch in self._jobs.log(pod["metadata"]["name"], query).batches(unfinished=True):
                    lines += batch
        return [line.decode(errors="replace") for line in lines[-LAST_LINES:]]

    def _workers(self, name: str) -> list[Document]:
        return self._jobs.pods(self._made[name])


@dataclass(frozen=True, slots=True)
class Done:
    """A measured run, the node of each of its workers, and the share of its data's files that was in the page cache."""

    run: ProfiledRun
    nodes: tuple[str, ...]
    cached: object = None


def profile_job(cluster: ProfilingCluster, document: Document, devices: int, plan: StepLimits, machine: str) -> Profile:
    """All runs, one after the other. Raises InvalidInput that says which run went wrong, and why.

    Where there are no two nodes with halves of the GPUs, a note says so, and the network stall is left out.
    """
    done: dict[str, Done] = {}
    notes = [] if plan.paths else [UNTOLD]
    for mode in plan.modes(devices):
        if mode == "halves":
            notes += _halves(cluster, document, devices, plan, done)
        else:
            gpus = 1 if mode == "one" else devices
            done[mode] = measured(cluster, run_document(document, mode, gpus, plan), gpus, plan)
    if devices % 2:
        notes.append(f"{devices} GPUs have no two halves, so the network stall was not measured")
    notes += [_nodes_note(done), cold_note(done["cold"].cached) if "cold" in done else ""]
    runs = {mode: one.run for mode, one in done.items()}
    name = machine or done["all"].nodes[0]
    return Profile(name, devices, "GPU", plan.warm_up, plan.steps, runs, tuple(filter(None, notes)))


def _halves(cluster: ProfilingCluster, document: Document, devices: int, plan: StepLimits, done: dict[str, Done]) -> list[str]:
    """Adds the run on two nodes, or says why there is none."""
    half = run_document(document, "halves", devices // 2, plan, done["all"].nodes[0])
    try:
        found = measured(cluster, half, devices // 2, plan)
    except InvalidInput as error:
        return [f"the network stall was not measured: {error}"]
    if found.run.ranks != devices:
        return [
            f"the network stall was not measured: {found.run.ranks} processes trained together on two nodes, not {devices}; let "
            "torchrun read PET_NNODES and MASTER_ADDR, as kompakt sets them"
        ]
    done["halves"] = found
    return []


def _nodes_note(done: Mapping[str, Done]) -> str:
    """Runs on different nodes compare different machines."""
    found = {mode: one.nodes[0] for mode, one in done.items() if mode != "halves"}
    told = ", ".join(f"{mode}: {node}" for mode, node in found.items())
    return (
        f"the runs sat on different nodes ({told}): stalls hold what differs between these, too"
        if len(set(found.values())) > 1
        else ""
    )


def measured(cluster: ProfilingCluster, document: Document, gpus: int, plan: StepLimits) -> Done:
    """One run, with so many GPUs for each of its workers. Raises InvalidInput that says why there are no figures."""
    with cluster.running(document) as name:
        workers = len(document["spec"]["roles"])
        print(f"kompakt: TrainingJob {cluster.namespace}/{name} on {workers * gpus} GPUs ...", file=sys.stderr, flush=True)
        status = _ended(cluster, name, plan.limit_s)
        said = _last_words(cluster, name, workers)
        bad = next((one for one in said if one.get("processes") != gpus), None)
        if len(said) < workers or bad is not None:
            container = container_of(document["spec"]["roles"][0])["name"]
            raise InvalidInput(_why(name, status, bad, gpus, plan, cluster.last_lines(name, container)))
        run = slowest([told_run(one, f"what {name} left") for one in said])
        return Done(run, cluster.nodes(name), said[0].get("cached"))


def _last_words(cluster: ProfilingCluster, name: str, workers: int) -> list[dict[str, Any]]:
    """What the start-up hooks left; a worker may take a moment longer than its job."""
    until = time.monotonic() + (LAST_WORDS_S if workers > 1 else 0)
    while len(words := cluster.last_words(name)) < workers and time.monotonic() < until:
        time.sleep(PAUSE_S)
    said = ((read_report(one) or {}).get("run") for one in words)
    return [one for one in said if isinstance(one, dict)]


def _ended(cluster: ProfilingCluster, name: str, limit_s: float) -> Document:
    until = time.monotonic() + limit_s
    while (status := cluster.status(name)).get("phase") not in ("Succeeded", "Failed"):
        scheduling = status.get("scheduling") or {}
        why = scheduling.get("message", "")
        if scheduling.get("reason") in (Reason.NEVER_FITS, Reason.INVALID_REQUEST):
            raise InvalidInput(f"{name}: {why}")
        if time.monotonic() > until:
            phase = status.get("phase") or "not seen by an operator"
            raise InvalidInput(f"{name}: {phase} after {limit_s:g} s{': ' if why else ''}{why}; give a longer --timeout")
        time.sleep(PAUSE_S)
    return status


def _why(name: str, status: Mapping[str, Any], said: object, gpus: int, plan: StepLimits, lines: list[str]) -> str:
    needed, last = plan.warm_up + plan.steps, "".join(f"\n  | {line}" for line in lines)
    if not isinstance(said, dict):
        failed = read_conditions(status.get("conditions")).get(Type.FAILED)
        why = f"{failed.reason}: {failed.message}" if failed is not None and failed.true else "the start-up hook left no word"
        return f"{name}: {why}{last}"
    if said.get("processes"):
        return (
            f"{name}: {said['processes']} processes took the steps on {gpus} GPUs; let torchrun read PET_NPROC_PER_NODE, which "
            f"kompakt sets, rather than --nproc-per-node{last}"
        )
    return f"{name}: the script ended after {said.get('steps', 0)} optimizer steps; {needed} are needed{last}"
