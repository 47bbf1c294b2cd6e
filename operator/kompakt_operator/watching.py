"""kopf watches; handlers only note what they saw and put the job's key in line. No finalizer, no annotation, no patch.

A watch that begins anew lists what there is and says nothing of what went meanwhile. So whenever one does, pods and Services
are listed and compared with what is known; from time to time so are the jobs.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final

import kopf

from kompakt_client.errors import ApiError
from kompakt_core import contract
from kompakt_core.contract import worker_labels
from kompakt_operator.api import OperatorApi, core_path, jobs_path, login
from kompakt_operator.cache import Cache, pod_entry, service_entry
from kompakt_operator.config import OperatorConfig
from kompakt_operator.listing import PAGE, list_all, pages
from kompakt_operator.watch_health import WatchHealth
from kompakt_operator.workqueue import Key, WorkQueue

RESYNC_SECONDS: Final = 300.0
# Connections that may be silent one after the other before a watch counts as stuck: 72 s each, and a bookmark comes every 60 s.
SILENCES: Final = 2.5
SETTLE_SECONDS: Final = 1.0  # all watches break together when the API server goes: one comparison for all of them
Notice = Callable[[dict[str, Any]], None]
"""Takes a job as it stands now and puts it in line unless nothing is to be done."""
log = logging.getLogger(__name__)


def settings_of(settings: kopf.OperatorSettings, patience: float) -> None:
    """kopf made robust: bounded watches (a silent connection is given up), no Events from logs, nothing stored on objects."""
    settings.posting.enabled = False
    settings.persistence.consistency_timeout = 0
    settings.watching.server_timeout = 120
    settings.watching.client_timeout = 150
    settings.watching.connect_timeout = 5
    settings.watching.inactivity_timeout = patience / SILENCES
    settings.watching.chunk_size = PAGE  # a whole list of thousands of jobs at once would cost 100 MB
    settings.networking.request_timeout = 10
    settings.networking.connect_timeout = 5
    # A worker of kopf lives for one object and idles before it ends; with a limit, idling workers would be the limit.
    settings.queueing.worker_limit = 200
    settings.queueing.idle_timeout = 0.05
    for kind in ("pods", "services"):
        settings.watching.label_selectors[kind] = contract.LABEL_JOB_UID


def registry_for(
    config: OperatorConfig, cache: Cache, queue: WorkQueue, watch_health: WatchHealth, relisted: asyncio.Event, notice: Notice
) -> kopf.OperatorRegistry:
    """The handlers; they set `relisted` when a watch begins anew.

    An explicit registry: kopf's default one would import whatever client library it finds.
    """
    registry = kopf.OperatorRegistry()

    def noted(kind: str, event: Any) -> None:
        watch_health.watched(kind, event["object"])
        if event["type"] is None:  # so kopf marks what a list shows, before a watch begins
            relisted.set()

    @kopf.on.startup(registry=registry)
    def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
        settings_of(settings, config.watch_patience)
        settings.scanning.disabled = bool(config.namespace)  # it would ask for all namespaces and definitions

    @kopf.on.login(registry=registry)
    def credentials(**_: Any) -> kopf.ConnectionInfo:
        return login(config)

    @kopf.on.event(contract.GROUP, contract.VERSION, contract.JOB_PLURAL, registry=registry)
    async def job_seen(event: Any, **_: Any) -> None:
        noted(contract.JOB_KIND, event)
        if event["type"] != "DELETED":
            notice(event["object"])

    @kopf.on.event("pods", registry=registry)
    async def pod_seen(event: Any, **_: Any) -> None:
        noted("Pod", event)
        cache.see_pod(event["object"], gone=event["type"] == "DELETED")
        _enqueue_owner(queue, event["object"])

    @kopf.on.event("services", registry=registry)
    async def service_seen(event: Any, **_: Any) -> None:
        noted("Service", event)
        cache.see_service(event["object"], gone=event["type"] == "DELETED")
        _enqueue_owner(queue, event["object"])

    if not config.namespace:  # GPUTopologies belong to the cluster; with rights in one namespace they cannot be read

        @kopf.on.event(contract.GROUP, contract.VERSION, contract.TOPOLOGY_PLURAL, registry=registry)
        async def topology_seen(event: Any, **_: Any) -> None:
            for key in cache.see_topology(event["object"], gone=event["type"] == "DELETED"):
                queue.add(key)

    return registry


def _enqueue_owner(queue: WorkQueue, obj: dict[str, Any]) -> None:
    meta = obj["metadata"]
    name = worker_labels.job_name(meta.get("labels") or {})
    if name:
        queue.add((meta["namespace"], name))


async def fill(api: OperatorApi, config: OperatorConfig, cache: Cache) -> set[Key]:
    """All worker pods and Services as they stand now; the jobs of which one has vanished unseen."""
    with cache.listing():
        pods = await list_all(api, core_path("pods", config.namespace), pod_entry, labelSelector=contract.LABEL_JOB_UID)
        vanished = cache.replace_pods(pods)
        path = core_path("services", config.namespace)
        services = await list_all(api, path, service_entry, labelSelector=contract.LABEL_JOB_UID)
        return vanished | cache.replace_services(services)


async def resync(
    api: OperatorApi, config: OperatorConfig, cache: Cache, queue: WorkQueue, relisted: asyncio.Event, notice: Notice
) -> None:
    """Compare pods and Services whenever a watch began anew; every few minutes go over all jobs as well."""
    while True:
        due = not await within(relisted, RESYNC_SECONDS)
        if not due:
            await asyncio.sleep(SETTLE_SECONDS)
        relisted.clear()
        try:
            for key in await fill(api, config, cache):
                queue.add(key)
            if due:
                await _all_jobs(api, config, notice)
        except ApiError as problem:
            log.warning("resync: %s", problem)
            relisted.set()


async def within(event: asyncio.Event, seconds: float) -> bool:
    """Whether it is set in that time."""
    try:
        async with asyncio.timeout(seconds):  # asyncio.wait_for of Python 3.11 may swallow a cancellation
            await event.wait()
    except TimeoutError:
        return False
    return True


async def _all_jobs(api: OperatorApi, config: OperatorConfig, notice: Notice) -> None:
    """Of thousands, whole objects are never in memory together, and those that rest cost no request of their own."""
    async for page in pages(api, jobs_path(config.namespace)):
        for obj in page.objects:
            notice(obj)
