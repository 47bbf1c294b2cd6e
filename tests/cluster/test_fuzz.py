"""Random TrainingJobs on the real API server: a clear refusal, or a job that reaches an end state and leaves nothing behind.

KOMPAKT_FUZZ says how many are judged by a dry run, KOMPAKT_FUZZ_RUN how many run; KOMPAKT_SEED repeats a run's choices.
"""

import json
import os
import random
import secrets
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from kubernetes import client

from kompakt_core.contract import GROUP, JOB_PLURAL, MANAGED_BY, VERSION
from kompakt_core.errors import InvalidInput
from kompakt_core.job.spec import parse_job
from kompakt_operator import render
from tests.support.cluster.manifests import Chance
from tests.support.cluster.storm import held
from tests.support.crds import schema
from tests.support.turns import in_turn
from tools.kube.session import ClusterSession, eventually

pytestmark = in_turn(0)

JUDGED = int(os.environ.get("KOMPAKT_FUZZ", "1500"))
RUN = int(os.environ.get("KOMPAKT_FUZZ_RUN", "60"))
SEED = int(os.environ.get("KOMPAKT_SEED", "0")) or secrets.randbelow(1 << 31)
AT_ONCE = 20  # jobs that run side by side on 24 GPUs
Document = dict[str, Any]


def created(cluster: ClusterSession, namespace: str, body: Document, **options: str) -> tuple[int, Document]:
    """Status and answer of a creation, checked as strictly as kubectl asks for."""
    create = cluster.custom.create_namespaced_custom_object
    try:
        made = create(GROUP, VERSION, namespace, JOB_PLURAL, body, field_validation="Strict", **options)
    except client.ApiException as refusal:
        return int(refusal.status), dict(json.loads(refusal.body))
    return 201, dict(made)


def judgement(code: int, answer: Document, body: Document) -> str:
    """What became of it. Raises AssertionError for an answer that helps nobody."""
    if code != 201:
        assert code in (400, 422), (code, answer, body)
        assert any(word in answer["message"] for word in ("spec", "metadata.name")), (answer, body)
        return f"refused with {code}"
    told = what_is_told(answer)
    assert not told or told.startswith("spec."), (told, body)
    return "told in its status" if told else "accepted"


def what_is_told(obj: Document) -> str:
    """Why the operator refuses an accepted object; "" where it makes pods of it."""
    try:
        job = parse_job(obj)
        render.checked(job)
    except InvalidInput as told:
        return str(told)
    for role in job.roles:
        render.pod(job, role, 0, 1, image="i")
    return ""


@pytest.mark.timeout(300 + JUDGED // 5)
def test_random_jobs_are_accepted_or_clearly_refused(kompakt: ClusterSession, namespace: str) -> None:
    print(f"KOMPAKT_SEED={SEED}")
    chance, spec = Chance(random.Random(SEED)), schema("trainingjobs", "spec")
    bodies = [chance.manifest(spec) for _ in range(JUDGED)]
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda body: created(kompakt, namespace, body, dry_run="All"), bodies))
    found = Counter(judgement(*answer, body) for answer, body in zip(answers, bodies, strict=True))
    print(dict(found))
    assert min(found["accepted"], found["refused with 422"], found["told in its status"]) > JUDGED // 50


def rest(job: Document | None) -> str:
    """The state in which a job stays until somebody changes something; "" while it is on its way."""
    if job is None:
        return "gone by its time to live"
    status = job.get("status") or {}
    holding = {c["type"]: c for c in status.get("conditions", ())}
    if job["spec"]["managedBy"] != MANAGED_BY:
        return "left alone"
    if status.get("phase") in ("Succeeded", "Failed", "Suspended"):
        return str(status["phase"])
    if (reason := holding.get("Placed", {}).get("reason")) in ("NeverFits", "InvalidRequest"):
        return str(reason)
    return "Stalled" if holding.get("Stalled", {}).get("status") == "True" else ""


def listed(cluster: ClusterSession, namespace: str) -> dict[str, Document]:
    found = cluster.custom.list_namespaced_custom_object(GROUP, VERSION, namespace, JOB_PLURAL)["items"]
    return {job["metadata"]["name"]: job for job in found}


@pytest.mark.timeout(300 + 10 * RUN)
def test_random_jobs_reach_an_end_and_leave_nothing(kompakt: ClusterSession, namespace: str) -> None:
    print(f"KOMPAKT_SEED={SEED}")
    chance, spec, ends = Chance(random.Random(SEED + 1), oddity=0.003), schema("trainingjobs", "spec"), Counter[str]()
    number = 0
    while ends.total() < RUN:
        names: list[str] = []
        while len(names) < AT_ONCE:
            number += 1
            body = chance.manifest(spec, f"fuzz-{number}")
            body["spec"].pop("placement", None)  # how long a gang waits for a better place is not what this is about
            if created(kompakt, namespace, body)[0] == 201:
                names.append(body["metadata"]["name"])

        def restless(names: list[str] = names) -> dict[str, Any]:
            jobs = listed(kompakt, namespace)
            return {name: jobs[name] for name in names if not rest(jobs.get(name))}

        try:
            eventually(lambda: not restless(), "an end state")
        except AssertionError as error:
            raise AssertionError("\n".join(map(json.dumps, restless().values()))) from error
        jobs = listed(kompakt, namespace)
        ends.update(rest(jobs.get(name)) for name in names)
        kompakt.custom.delete_collection_namespaced_custom_object(GROUP, VERSION, namespace, JOB_PLURAL)
        eventually(lambda: not kompakt.core.list_namespaced_pod(namespace).items, "no pod left")
        eventually(lambda: not kompakt.core.list_namespaced_service(namespace).items, "no Service left")
    print(f"{number} made: {dict(ends)}")
    eventually(lambda: not held(kompakt), "no GPU held")
    assert ends["Succeeded"] > RUN // 3
