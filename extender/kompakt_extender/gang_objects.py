"""Objects of gangs that others made: one is written when the first pod of a gang is seen, and deleted when the last one is gone.

Users and their controllers know nothing of these objects; the planner needs one to write a gang's plan on.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final

from kompakt_client.requests import APPLY
from kompakt_core import contract
from kompakt_core.contract.gang_member import GangMember
from kompakt_core.errors import TryLater
from kompakt_extender.gangs_of_others import Removal, wanted
from kompakt_extender.jobs import Jobs
from kompakt_extender.views import JobKind, JobView
from kompakt_extender.writer import NotSent, Pause, Sender

_LOG = logging.getLogger(__name__)
REST_SECONDS: Final = 0.05  # pods of a gang come in flocks
AGAIN_SECONDS: Final = 1.0  # after a write of unknown outcome, and while nobody may write
REFUSED_SECONDS: Final = 10.0


class GangObjects:
    """Keeps them in step with the pods. `touch` says that something of a gang has changed."""

    def __init__(self, jobs: Jobs, writer: Sender, may_write: Callable[[], bool], *, pause: Pause = asyncio.sleep) -> None:
        self._jobs, self._writer, self._may_write, self._pause = jobs, writer, may_write, pause
        self._touched: dict[str, None] = {}  # uids, in order
        self._busy: dict[str, asyncio.Task[None]] = {}
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Call when all pods and objects are known."""
        self._task = asyncio.create_task(self._run())

    def stop(self) -> None:
        """Halt at once."""
        for task in (self._task, *self._busy.values()):
            if task is not None:
                task.cancel()

    @property
    def busy(self) -> tuple[asyncio.Task[None], ...]:
        """The writes under way."""
        return tuple(self._busy.values())

    def touch(self, uid: str) -> None:
        """One of its pods, or its object, has come, changed or gone."""
        self._touched[uid] = None
        self._wake.set()

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            if self._may_write():
                self.begin()
                await asyncio.sleep(REST_SECONDS)
            else:
                await asyncio.sleep(AGAIN_SECONDS)
                self._wake.set()

    def begin(self) -> None:
        """Begin the writes that follow from what has changed; one for each gang at a time."""
        for uid in [uid for uid in self._touched if uid not in self._busy]:
            del self._touched[uid]
            try:
                self._begin(uid)
            except Exception:  # one gang that we stumble over must not stop the others
                _LOG.exception("gang %s was not looked at", uid)

    def _begin(self, uid: str) -> None:
        known = self._jobs.views.get(uid)
        act = wanted(list(self._jobs.pods_of(uid)), known)
        if act is not None:
            self._busy[uid] = asyncio.create_task(self._settle(uid, known, act))

    async def _settle(self, uid: str, known: JobView | None, act: GangMember | Removal) -> None:
        try:
            if isinstance(act, GangMember):
                await self._write(uid, act)
            elif known is not None:
                await self._delete(known)
        except (TryLater, NotSent) as error:
            _LOG.warning("gang %s: %s", uid, error)
            await self._again(uid, AGAIN_SECONDS)
        finally:
            self._busy.pop(uid, None)
            self._wake.set()

    async def _again(self, uid: str, seconds: float) -> None:
        await self._pause(seconds)
        self._touched[uid] = None

    async def _write(self, uid: str, member: GangMember) -> None:
        """A server-side apply: it makes the object where there is none, and changes nothing where all is as wanted."""
        namespace, _, name = uid.partition("/")
        body = {
            "apiVersion": contract.API_VERSION,
            "kind": JobKind.GANG.value,
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"size": member.size, "requiredLevel": member.required_level.value},
        }
        query = {"fieldManager": contract.PLANNER_MANAGER, "force": "true"}
        answer = await self._writer.send("PATCH", _path(namespace, name), body=body, query=query, content_type=APPLY)
        if not answer.ok:
            _LOG.error("Gang %s is refused: %s", uid, answer.message)
            await self._again(uid, REFUSED_SECONDS)

    async def _delete(self, gang: JobView) -> None:
        """This very object, as it was judged. One that has changed meanwhile is judged anew when that is seen."""
        seen = {"uid": gang.written_uid, "resourceVersion": gang.resource_version}
        body: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": seen}
        answer = await self._writer.send("DELETE", _path(gang.namespace, gang.name), body=body)
        if not answer.ok and answer.status not in (404, 409):
            _LOG.error("Gang %s is not deleted: %s", gang.uid, answer.message)
            await self._again(gang.uid, REFUSED_SECONDS)


def _path(namespace: str, name: str) -> str:
    return f"/apis/{contract.API_VERSION}/namespaces/{namespace}/{JobKind.GANG.plural}/{name}"
