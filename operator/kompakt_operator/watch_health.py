"""Whether the watches still show what the API server has: each of its other answers is evidence against them.

A watch shows the writes of one kind in the order of their versions. Whoever lists, reads or writes an object of a higher one than
the watch has shown knows what it owes (`Store.owed`).
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

from kompakt_client.errors import Rejected
from kompakt_client.store import StoredObject
from kompakt_core import contract
from kompakt_core.errors import TryLater
from kompakt_operator import kueue, provisioning
from kompakt_operator.api import OperatorApi, core_path, jobs_path
from kompakt_operator.health import OperatorHealth
from kompakt_operator.observed import Observed

LOOKS: Final = 12  # how often within the time a watch is given
Owed = StoredObject[Any]
log = logging.getLogger(__name__)


class WatchHealth:
    """Remembers since when the watch of each kind owes what it owes. `clock` gives seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._since: dict[tuple[str, Owed], float] = {}

    def overdue(self, owed: Mapping[str, Owed], patience: float) -> list[tuple[str, Owed]]:
        """What has been owed for longer than that many seconds, and its kind."""
        now = self._clock()
        self._since = {both: self._since.get(both, now) for both in owed.items()}
        return [both for both, since in self._since.items() if now - since > patience]


async def judge(api: OperatorApi, observed: Observed, pulse: OperatorHealth, patience: float) -> None:
    """For ever: let the pulse say which watches are stuck."""
    watch_health = WatchHealth(asyncio.get_running_loop().time)
    while True:
        await asyncio.sleep(patience / LOOKS)
        overdue = watch_health.overdue(observed.owed(), patience)
        stuck = [(kind, owed) for kind, owed in overdue if await proven(api, observed, kind, owed)]
        told = "; ".join(f"the watch of {kind}s has not shown uid {owed.uid} for {patience:.0f} s" for kind, owed in stuck)
        if told and told != pulse.stuck_watch:
            log.error(
                "%s: %s", told, ", ".join(f"{owed.namespace}/{owed.name}" for _, owed in stuck)
            )  # a probe has no reader to ask
        pulse.stuck_watch = told


async def proven(api: OperatorApi, observed: Observed, kind: str, owed: Owed) -> bool:
    """Ask once more. An API server that does not answer proves nothing, and to be restarted would not help."""
    try:
        found = await api.get(path_of(kind, owed))
    except TryLater:
        return False
    except Rejected:
        found = {}
    still = observed.owed().get(kind) == owed
    if still and (found.get("metadata") or {}).get("uid") != owed.uid:
        observed.acquit(kind)
        return False
    return still


def path_of(kind: str, owed: Owed) -> str:
    """Where that object is read."""
    if kind == contract.JOB_KIND:
        return jobs_path(owed.namespace, owed.name)
    if kind == kueue.KIND:
        return kueue.workloads_path(owed.namespace, owed.name)
    if kind == provisioning.KIND:
        return provisioning.requests_path(owed.namespace, owed.name)
    return core_path(f"{kind.lower()}s", owed.namespace, owed.name)
