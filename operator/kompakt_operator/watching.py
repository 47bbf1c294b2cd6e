"""kopf watches TrainingJobs; its handler only notes how far the watch is and puts the job's key in line.

No finalizer, no annotation, no patch. What belongs to jobs is watched by Reflectors (observed.py).
"""

import asyncio
import logging
import os
from collections.abc import Callable
from typing import Any, Final

import kopf

from kompakt_client import memory
from kompakt_client.errors import ApiError, Unreachable
from kompakt_core import contract
from kompakt_operator.api import OperatorApi, jobs_path
from kompakt_operator.config import ACCOUNT, OperatorConfig
from kompakt_operator.observed import COMPARE_SECONDS, SILENCES, Observed

KOPF_PAGE: Final = 10  # jobs, which kopf counts and does not weigh: they may have 1.5 MB each, and six times that when read
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
    settings.watching.chunk_size = KOPF_PAGE
    settings.networking.request_timeout = 10
    settings.networking.connect_timeout = 5
    # A worker of kopf lives for one object and idles before it ends; with a limit, idling workers would be the limit.
    settings.queueing.worker_limit = 200
    settings.queueing.idle_timeout = 0.05


def registry_for(config: OperatorConfig, observed: Observed, notice: Notice) -> kopf.OperatorRegistry:
    """The handlers.

    An explicit registry: kopf's default one would import whatever client library it finds.
    """
    registry = kopf.OperatorRegistry()

    @kopf.on.startup(registry=registry)
    def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
        settings_of(settings, config.watch_patience)
        settings.scanning.disabled = bool(config.namespace)  # it would ask for all namespaces and definitions

    @kopf.on.login(registry=registry)
    def credentials(**_: Any) -> kopf.ConnectionInfo:
        return login(config)

    @kopf.on.event(contract.GROUP, contract.VERSION, contract.JOB_PLURAL, registry=registry)
    async def job_seen(event: Any, **_: Any) -> None:
        observed.job_seen(event["object"])
        if event["type"] != "DELETED":
            notice(event["object"])

    return registry


def login(config: OperatorConfig) -> kopf.ConnectionInfo:
    """Where the API server of kopf's own watch is, and who we are there. Raises Unreachable."""
    settings = kopf.OperatorSettings()
    if config.kubeconfig:
        os.environ["KUBECONFIG"] = config.kubeconfig
        found = kopf.login_with_kubeconfig(settings=settings)
    else:
        found = kopf.login_with_service_account(settings=settings)
    if found is None:
        raise Unreachable(f"no credentials in {config.kubeconfig or ACCOUNT}")
    return found


async def resync(api: OperatorApi, config: OperatorConfig, observed: Observed, notice: Notice) -> None:
    """Every few minutes go over all jobs: kopf makes no comparison by the clock.

    Of thousands, whole objects are never in memory together, and those that rest cost no request of their own.
    """
    while True:
        await asyncio.sleep(COMPARE_SECONDS)
        try:
            async for obj in api.listed(jobs_path(config.namespace)):
                observed.job_answered(obj)
                notice(obj)
        except ApiError as problem:
            log.warning("resync: %s", problem)
        memory.trim()  # large jobs that were read, and are gone perhaps, else leave the process as large as it ever was
