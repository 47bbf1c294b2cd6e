"""Measured runs as TrainingJobs in a cluster: the job's own pod template, a few steps on GPUs of one machine (or halves of two).

The start-up hook that every worker has anyway times the steps and leaves the figures in the pod's termination message.
"""

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote

from kompakt_cli.access import api_of
from kompakt_cli.profile_document import UNTOLD, cold_note, told_run
from kompakt_cli.profile_manifest import Document, StepLimits, container_of, run_document
from kompakt_core import contract
from kompakt_core.contract import job_owner, worker_labels
from kompakt_core.contract.conditions import Type, read_conditions
from kompakt_core.contract.job_owner import JobOwner
from kompakt_core.errors import InvalidInput
from kompakt_core.job.reports import read_report
from kompakt_core.placement.model import Reason
from kompakt_core.profile.document import Profile, ProfiledRun, slowest

PAUSE_S: Final = 1.0
LAST_LINES: Final = 15
DELETIONS: Final = 10  # tries to delete a job whose status may be written in between
LAST_WORDS_S: Final = 30.0  # for all pods to end once their job has


class ProfilingCluster:
    """Where the runs are made, with the rights of a kubeconfig: TrainingJobs, and the pods that they make."""

    def __init__(self, kubeconfig: str | None, context: str | None, namespace: str | None) -> None:
        """Raises InvalidInput where no kubeconfig can be used."""
        self._api, default = api_of(kubeconfig, context)
        self.namespace = namespace or default
        at = f"namespaces/{quote(self.namespace, safe='')}"
        self._jobs = f"/apis/{contract.GROUP}/{contract.VERSION}/{at}/{contract.JOB_PLURAL}"
        self._pods = f"/api/v1/{at}/pods"
        self._made: dict[str, JobOwner] = {}  # the jobs made here, by name

    @contextmanager
    def running(self, document: Document) -> Iterator[str]:
        """The job exists meanwhile, and is deleted however this ends; gives its name."""
        name = document["metadata"]["name"]
        uid = _told(lambda: self._api.create(self._jobs, document))["metadata"]["uid"]
        self._made[name] = JobOwner(self.namespace, name, uid)
        try:
            yield name
        finally:
            _told(lambda: self._deleted(_one(self._jobs, name), uid))

    def _deleted(self, path: str, uid: str) -> Document:
        """A job that somebody else has made under its name meanwhile is theirs. Raises an ApiError."""
        from kompakt_client.errors import Conflict, NotFound

        for _ in range(DELETIONS):
            try:
                meta = self._api.get(path)["metadata"]
                return self._api.delete(path, uid, meta["resourceVersion"]) if meta["uid"] == uid else {}
            except NotFound:
                return {}
            except Conflict:
                continue
        raise Conflict("the TrainingJob was changed each time that it was to be deleted", HTTPStatus.CONFLICT)

    def annotate(self, name: str, profile: str) -> None:
        """Hand a profile to the TrainingJob of that name, which counts from its next attempt on."""
        body = {"metadata": {"annotations": {contract.ANN_PROFILE: profile}}}
        _told(lambda: self._api.merge(_one(self._jobs, name), body))

    def status(self, name: str) -> Document:
        found = _told(lambda: self._api.get(_one(self._jobs, name)))
        return dict(found.get("status") or {})

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
        from kompakt_client.requests import ApiRequest

        lines: list[str] = []
        query: dict[str, str | int] = {"container": container, "tailLines": LAST_LINES}
        for pod in self._workers(name):
            path = f"{_one(self._pods, pod['metadata']['name'])}/log"
            with suppress(ApiError):
                said = self._api.send(
                    ApiRequest("GET", path, query, accept="*/*")
                )  # text/plain alone would be refused with errors
                lines += said.decode(errors="replace").splitlines()
        return lines[-LAST_LINES:]

    def _workers(self, name: str) -> list[Document]:
        """Pods of others may have any label; what those say must not be taken for figures."""
        query = {"labelSelector": worker_labels.job_name_selector(name)}
        found = _told(lambda: self._api.list(self._pods, query)).get("items") or ()
        return [pod for pod in found if job_owner.readable(pod["metadata"]) == self._made[name]]


def _one(path: str, name: str) -> str:
    return f"{path}/{quote(name, safe='')}"


def _told(ask: Callable[[], Document]) -> Document:
    """What the API server answers. Raises InvalidInput with its own words."""
    from kompakt_client.errors import ApiError

    try:
        return ask()
    except ApiError as error:
        raise InvalidInput(refusal(error.status, error.message)) from None
    except ValueError as error:  # a token that is no text
        raise InvalidInput(f"the API server cannot be reached: {error}") from None


def refusal(status: int, said: str) -> str:
    """One sentence about a request that was not done; without a status there was no answer."""
    if not status:
        return f"the API server cannot be reached: {said}"
    phrase = next((f" {one.phrase}" for one in HTTPStatus if one == status), "")
    return f"the API server: {status}{phrase}; {said[:300]}"


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
        if scheduling.get("reason") == Reason.NEVER_FITS:
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
