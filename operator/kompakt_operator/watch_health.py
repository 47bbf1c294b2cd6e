"""Whether the watches still show what the API server has: each of its other answers is evidence against them.

A watch shows the writes of one kind in the order of their versions. So one number per kind is enough: the highest version
it has shown. Whoever lists, reads or writes an object of a higher one knows what the watch owes.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from kompakt_client.errors import Rejected
from kompakt_core import contract
from kompakt_core.errors import TryLater
from kompakt_core.job.pods import version_of
from kompakt_operator.api import OperatorApi, core_path, jobs_path
from kompakt_operator.health import OperatorHealth

KINDS: Final = (contract.JOB_KIND, "Pod", "Service")
LOOKS: Final = 6  # how often within the time a watch is given
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Owed:
    """An object that was answered at that moment, and that the watch of its kind had not shown by then."""

    kind: str
    namespace: str
    name: str
    uid: str
    version: int
    since: float

    @property
    def path(self) -> str:
        plural = {"Pod": "pods", "Service": "services"}.get(self.kind)
        return core_path(plural, self.namespace, self.name) if plural else jobs_path(self.namespace, self.name)


class WatchHealth:
    """Remembers per kind what the watch has shown and the first object that it owes. `clock` gives seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._shown = dict.fromkeys(KINDS, 0)
        self._owed: dict[str, Owed] = {}

    def answered(self, body: Mapping[str, Any]) -> None:
        """An object or a list that a request brought."""
        kind = str(body.get("kind", ""))
        for obj in body.get("items") or () if kind.endswith("List") else (body,):
            self._exists(kind.removesuffix("List"), obj.get("metadata") or {})

    def _exists(self, kind: str, meta: Mapping[str, Any]) -> None:
        version = version_of(meta)
        if kind in self._shown and kind not in self._owed and version > self._shown[kind]:
            where = str(meta.get("namespace", "")), str(meta.get("name", "")), str(meta.get("uid", ""))
            self._owed[kind] = Owed(kind, *where, version, self._clock())

    def watched(self, kind: str, body: Mapping[str, Any]) -> None:
        """An object that the watch of its kind has shown, as it is, changed or gone."""
        self._shown[kind] = max(self._shown[kind], version_of(body.get("metadata") or {}))
        owed = self._owed.get(kind)
        if owed is not None and owed.version <= self._shown[kind]:
            del self._owed[kind]

    def overdue(self, patience: float) -> list[Owed]:
        """What watches have owed for longer than that many seconds."""
        return [owed for owed in self._owed.values() if self._clock() - owed.since > patience]

    def owes(self, owed: Owed) -> bool:
        """Whether it is owed still."""
        return self._owed.get(owed.kind) == owed

    def acquit(self, owed: Owed) -> None:
        """The object is there no more; a watch that began anew meanwhile need never show it."""
        if self.owes(owed):
            del self._owed[owed.kind]


async def judge(api: OperatorApi, watch_health: WatchHealth, pulse: OperatorHealth, patience: float) -> None:
    """For ever: let the pulse say which watches are stuck."""
    while True:
        await asyncio.sleep(patience / LOOKS)
        stuck = [owed for owed in watch_health.overdue(patience) if await proven(api, watch_health, owed)]
        told = "; ".join(f"the watch of {o.kind}s has not shown {o.namespace}/{o.name} for {patience:.0f} s" for o in stuck)
        if told and told != pulse.stuck_watch:
            log.error("%s", told)
        pulse.stuck_watch = told


async def proven(api: OperatorApi, watch_health: WatchHealth, owed: Owed) -> bool:
    """Ask once more. An API server that does not answer proves nothing, and to be restarted would not help."""
    try:
        found = await api.get(owed.path)
    except TryLater:
        return False
    except Rejected:
        found = {}
    if (found.get("metadata") or {}).get("uid") != owed.uid:
        watch_health.acquit(owed)
    return watch_health.owes(owed)
