"""kopf watches; handlers only note what they saw and put the job's key in line. No finalizer, no annotation, no patch.

A watch can miss a deletion while it is down, so everything is listed again from time to time.
"""

import asyncio
import logging
from typing import Any, Final

import kopf

from kompakt_core import contract
from kompakt_core.job.status import read_status
from kompakt_operator.api import Api, ApiRefused, ApiUnreachable, core_path, jobs_path, login
from kompakt_operator.cache import Cache
from kompakt_operator.config import Config
from kompakt_operator.workqueue import WorkQueue

RESYNC_SECONDS: Final = 300.0
PAGE: Final = "100"
log = logging.getLogger(__name__)


def settings_of(settings: kopf.OperatorSettings) -> None:
    """kopf made robust: bounded watches (a silent connection is given up), no Events from logs, nothing stored on objects."""
    settings.posting.enabled = False
    settings.persistence.consistency_timeout = 0
    settings.watching.server_timeout = 120
    settings.watching.client_timeout = 150
    settings.watching.connect_timeout = 5
    settings.watching.chunk_size = int(PAGE)  # a whole list of thousands of jobs at once would cost 100 MB
    settings.networking.request_timeout = 10
    settings.networking.connect_timeout = 5
    # A worker of kopf lives for one object and idles before it ends; with a limit, idling workers would be the limit.
    settings.queueing.worker_limit = 200
    settings.queueing.idle_timeout = 0.05
    for kind in ("pods", "services"):
        settings.watching.label_selectors[kind] = contract.LABEL_JOB_UID


def registry_for(config: Config, cache: Cache, queue: WorkQueue) -> kopf.OperatorRegistry:
    """The handlers. An explicit registry: kopf's default one would import whatever client library it finds."""
    registry = kopf.OperatorRegistry()

    @kopf.on.startup(registry=registry)
    def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
        settings_of(settings)
        settings.scanning.disabled = bool(config.namespace)  # it would ask for all namespaces and definitions

    @kopf.on.login(registry=registry)
    def credentials(**_: Any) -> kopf.ConnectionInfo:
        return login(config)

    @kopf.on.event(contract.GROUP, contract.VERSION, contract.JOB_PLURAL, registry=registry)
    async def job_seen(event: Any, **_: Any) -> None:
        obj = event["object"]
        if event["type"] != "DELETED" and needs_look(obj):
            queue.add((obj["metadata"]["namespace"], obj["metadata"]["name"]))

    @kopf.on.event("pods", registry=registry)
    async def pod_seen(event: Any, **_: Any) -> None:
        cache.see_pod(event["object"], gone=event["type"] == "DELETED")
        _enqueue_owner(queue, event["object"])

    @kopf.on.event("services", registry=registry)
    async def service_seen(event: Any, **_: Any) -> None:
        cache.see_service(event["object"], gone=event["type"] == "DELETED")
        _enqueue_owner(queue, event["object"])

    if not config.namespace:  # GPUTopologies belong to the cluster; with rights in one namespace they cannot be read

        @kopf.on.event(contract.GROUP, contract.VERSION, contract.TOPOLOGY_PLURAL, registry=registry)
        async def topology_seen(event: Any, **_: Any) -> None:
            for key in cache.see_topology(event["object"], gone=event["type"] == "DELETED"):
                queue.add(key)

    return registry


def needs_look(obj: dict[str, Any]) -> bool:
    """False only for a finished job without a time to live: of thousands, most are that."""
    policy = (obj.get("spec") or {}).get("runPolicy") or {}
    return policy.get("ttlSecondsAfterFinished") is not None or not read_status(obj).finished


def _enqueue_owner(queue: WorkQueue, obj: dict[str, Any]) -> None:
    meta = obj["metadata"]
    name = (meta.get("labels") or {}).get(contract.LABEL_JOB_NAME)
    if name:
        queue.add((meta["namespace"], name))


async def fill(api: Api, config: Config, cache: Cache) -> None:
    """All worker pods and Services as they stand now."""
    cache.replace_all_pods(await _all(api, core_path("pods", config.namespace), labelSelector=contract.LABEL_JOB_UID))
    for obj in await _all(api, core_path("services", config.namespace), labelSelector=contract.LABEL_JOB_UID):
        cache.see_service(obj)


async def resync(api: Api, config: Config, cache: Cache, queue: WorkQueue) -> None:
    """List everything anew every few minutes."""
    while True:
        await asyncio.sleep(RESYNC_SECONDS)
        try:
            await fill(api, config, cache)
            for obj in await _all(api, jobs_path(config.namespace)):
                if needs_look(obj):
                    queue.add((obj["metadata"]["namespace"], obj["metadata"]["name"]))
        except (ApiRefused, ApiUnreachable) as problem:
            log.warning("resync: %s", problem)


async def _all(api: Api, path: str, **query: str) -> list[dict[str, Any]]:
    """A whole list, page by page."""
    found: list[dict[str, Any]] = []
    token = ""
    while True:
        page = await api.get(path, limit=PAGE, **query, **({"continue": token} if token else {}))
        found += page.get("items", ())
        token = (page.get("metadata") or {}).get("continue", "")
        if not token:
            return found
