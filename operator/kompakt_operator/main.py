"""The operator's process: wait for the Lease, watch, reconcile jobs; end when the Lease is lost, or when all must be read anew.

Its rights are those of charts/kompakt/files/rights.yaml, each with its reason there.
"""

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import Awaitable
from typing import Any, cast

import kopf

from kompakt_client import memory
from kompakt_client.elector import RETRY, LeaseElector
from kompakt_client.errors import Rejected, explained
from kompakt_client.reviews import Reviews
from kompakt_core import contract
from kompakt_core.errors import InvalidInput, TryLater
from kompakt_operator import crd, provisioning, watching
from kompakt_operator.api import OperatorApi
from kompakt_operator.config import OperatorConfig, read_config
from kompakt_operator.events import EventAnnouncer
from kompakt_operator.gated_pods import GatedPods
from kompakt_operator.health import MetricsGuard, OperatorHealth, serve
from kompakt_operator.observed import Observed
from kompakt_operator.reconcile import Reconciler
from kompakt_operator.scrape import Scraper
from kompakt_operator.watch_health import judge
from kompakt_operator.workqueue import WORKERS, Key, WorkQueue

CONFLICT_SECONDS = 0.02
CLOSING_SECONDS = 3.0
OTHERS_SECONDS = 10.0
# A gang's pods come, are bound and start one by one; its status is written at most so often, not once for each of them. A job
# without pods does not rest: the news that it waits for is that of its places.
REST_SECONDS = 0.25
log = logging.getLogger(__name__)


def main() -> None:
    """Entry point of the command `kompakt-operator`."""
    try:
        config = read_config(sys.argv[1:], os.environ)
        logging.basicConfig(level=config.log_level, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
        memory.one_heap()
        logging.getLogger("kopf").setLevel(max(logging.WARNING, logging.getLevelName(config.log_level)))
        api = OperatorApi(config.kubeconfig)
        # The Lease has connections of its own: in line behind the pods of many gangs it would not be renewed in time.
        apart = OperatorApi(config.kubeconfig, seconds=2 * RETRY, at_once=2)
    except InvalidInput as error:
        sys.exit(f"kompakt-operator: {error}")
    sys.exit(asyncio.run(run(config, api, apart)))


async def run(config: OperatorConfig, api: OperatorApi, apart: OperatorApi) -> int:
    """Exit code 1 when the Lease was lost; 0 after a signal, and where all must be read anew (etcd restored, another CRD)."""
    stop, pulse = asyncio.Event(), OperatorHealth()
    _end_by_signal(stop)
    guard = MetricsGuard(None if config.plain_metrics else Reviews(api.client))
    health = await serve(pulse, config.health_port, guard) if config.health_port else None
    try:
        elector = LeaseElector(apart, config.lease_namespace, contract.OPERATOR_LEASE, config.identity)
        pulse.hears_lease = lambda: elector.heard
        try:
            await _first(elector.acquired(), stop.wait())
            if not elector.active:
                return 0
            pulse.active = True
            await _first(elector.lost(), stop.wait(), _operate(config, api, pulse, stop))
            return 0 if elector.active else 1
        finally:  # the Lease is released when nothing is under way any more
            await api.close()
            await elector.release()
            await apart.close()
    finally:
        if health is not None:
            await health.cleanup()


def _end_by_signal(stop: asyncio.Event) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)


async def _first(*waits: Awaitable[object]) -> None:
    """Wait for the first to end, cancel the others; what it raised rises. All end as well when this itself is cancelled."""
    tasks: list[asyncio.Task[Any]] = [wait if isinstance(wait, asyncio.Task) else asyncio.ensure_future(wait) for wait in waits]
    done: set[asyncio.Task[Any]] = set()
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in done:
        task.result()


async def _operate(config: OperatorConfig, api: OperatorApi, pulse: OperatorHealth, stop: asyncio.Event) -> None:
    """Watch and reconcile until cancelled, or until the process must begin anew."""
    queue, first = WorkQueue(), await crd.served(api)
    observed = Observed(api.client, queue, config.namespace, config.watch_patience, config.kueue, bool(config.provisioning_class))
    gated = GatedPods(api.client, config.namespace)
    api.answered, pulse.waiting, pulse.gated = observed.answered, queue.__len__, gated.__len__
    observed.start()
    gated.start()
    try:
        if missing := await observed.ready(config.watch_patience):
            log.error("%s not listed in %.0f s: may this account list and watch them?", ", ".join(missing), config.watch_patience)
            return
        await _listed_in_time(observed, config)
        pulse.listed = True
        scraper, announcer = Scraper(queue, config.progress_seconds), EventAnnouncer(api, config.identity)
        told = config.runtime_image, config.keep_nodes, config.runtime_pull_secrets, config.planner_patience
        asked = config.resource, config.claims_scheduler, config.provisioning_class, config.ask_for_nodes_after
        reconciler = Reconciler(api, observed, queue, scraper, announcer, *told, *asked)
        workers = [_work(number, reconciler, queue, pulse) for number in range(WORKERS)]
        registry = watching.registry_for(config, observed, reconciler.notice)
        resync = watching.resync(api, config, observed, reconciler.notice)
        judging = judge(api, observed, pulse, config.watch_patience)
        asides = resync, judging, scraper.run(), announcer.run(), crd.changed(api, first), observed.left.wait()
        await _first(_watch(config, registry, stop), *asides, *workers)
    finally:
        observed.stop()
        gated.stop()


async def _listed_in_time(observed: Observed, config: OperatorConfig) -> None:
    """What others define, if they are there: without it jobs that do not need it must not wait for long."""
    if config.kueue:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(observed.kueue.wait(), OTHERS_SECONDS)
        if observed.without_kueue:
            log.error("%s", observed.without_kueue)
    if config.provisioning_class:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(observed.autoscaler.wait(), OTHERS_SECONDS)
        if not observed.autoscaler.is_set():
            log.error("%s (%s) cannot be listed: is its CRD installed?", provisioning.PLURAL, provisioning.API_VERSION)


async def _watch(config: OperatorConfig, registry: kopf.OperatorRegistry, stop: asyncio.Event) -> None:
    """kopf, until cancelled; it then gets a moment to close its connections.

    Signals set `stop`, as before: kopf takes them over, and would give all tasks of this process five seconds, then cancel them.
    """
    where: dict[str, Any] = {"namespaces": [config.namespace]} if config.namespace else {"clusterwide": True}
    closing, others = asyncio.Event(), asyncio.all_tasks()
    # Without an identity kopf asks for the user's name, which a user id of a container does not have.
    identity = cast(Any, config.identity)  # a type of kopf's that it does not export
    parts = await kopf.spawn_tasks(registry=registry, standalone=True, identity=identity, stop_flag=closing, **where)
    _end_by_signal(stop)
    task = asyncio.ensure_future(kopf.run_tasks(parts, ignored=others))
    try:
        await asyncio.shield(task)
    finally:
        closing.set()
        await asyncio.wait([task], timeout=CLOSING_SECONDS)


async def _work(number: int, reconciler: Reconciler, queue: WorkQueue, pulse: OperatorHealth) -> None:
    """One reconciliation after the other, for ever."""
    clock = asyncio.get_running_loop().time
    while True:
        key = await queue.take()
        pulse.under_way[number] = clock()
        rest = 0.0
        try:
            outcome, rest = await _look(reconciler, queue, key)
            pulse.reconciled(outcome, clock() - pulse.under_way[number])
        finally:
            del pulse.under_way[number]
            queue.done(key, rest)


async def _look(reconciler: Reconciler, queue: WorkQueue, key: Key) -> tuple[str, float]:
    """The outcome for the metrics, and for how long the job rests. Nothing that goes wrong with one job may stop the others."""
    try:
        has_pods = await reconciler.reconcile(key)
    except Rejected as rejected:
        if rejected.status == 409:  # somebody else wrote in between: decide again on what stands there now
            queue.add_after(key, CONFLICT_SECONDS)
        else:
            log.warning("%s/%s: %s; again in %.1f s", *key, explained(rejected), queue.retry(key))
        return "retried", 0.0
    except TryLater as problem:
        log.warning("%s/%s: %s; again in %.1f s", *key, explained(problem), queue.retry(key))
        return "retried", 0.0
    except Exception:
        log.exception("%s/%s: internal error; retrying in %.1f s", *key, queue.retry(key))
        return "failed", 0.0
    return "done", REST_SECONDS if has_pods else 0.0


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main()
