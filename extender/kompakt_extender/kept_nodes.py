"""Keeps cluster-autoscaler from removing nodes whose GPUs are reserved: until the gang has all of them they are empty, and look
as if nobody needed them.

A node that carries the annotation already is left alone, whatever it says. Ours is written by server-side apply, so that giving
it up takes away nobody else's.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Final

from kompakt_client.requests import APPLY
from kompakt_core import contract
from kompakt_core.errors import TryLater
from kompakt_core.ids import NodeName
from kompakt_extender.ledger import GpuLedger
from kompakt_extender.project import SCALE_DOWN_DISABLED
from kompakt_extender.views import NodeView
from kompakt_extender.writer import NotSent, Sender

_LOG = logging.getLogger(__name__)
CYCLE_SECONDS: Final = 10.0
AT_ONCE: Final = 32  # writes in a cycle


class KeptNodes:
    """Follows the reservations."""

    def __init__(
        self,
        ledger: GpuLedger,
        writer: Sender,
        may_write: Callable[[], bool],
        clock: Callable[[], float] = time.monotonic,
        *,
        after: float,
    ) -> None:
        """`after`: seconds that GPUs of a node must be reserved: most reservations are over soon, and cost no write then."""
        self._ledger, self._writer, self._may_write, self._clock, self._after = ledger, writer, may_write, clock, after
        self._since: dict[NodeName, float] = {}  # when GPUs of a node were first seen to be reserved, on the clock
        self._given_up: set[NodeName] = set()  # who are annotated still may be so by somebody else
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Call when reservations are known. Annotations of the process before this one are given up where nothing is reserved."""
        self._task = asyncio.create_task(self._run())

    def stop(self) -> None:
        """Halt at once."""
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(min(CYCLE_SECONDS, self._after))
            try:
                if self._may_write():
                    await self.run_cycle()
            except Exception:
                _LOG.exception("nodes with reserved GPUs were not looked at")

    async def run_cycle(self) -> None:
        """Annotate nodes that are to be kept, and give up those that need not be."""
        reserved, now = self._ledger.reserved.nodes, self._clock()
        self._since = {name: self._since.get(name, now) for name in sorted(reserved)}
        nodes = self._ledger.nodes
        self._given_up = {name for name in self._given_up if name in nodes and nodes[name].marked}
        keep = (nodes[name] for name, since in self._since.items() if name in nodes and now >= since + self._after)
        settled = reserved | self._given_up
        give_up = (node for node in nodes.values() if node.marked and node.name not in settled)
        for node in list(islice((one for one in keep if not one.marked), AT_ONCE)):
            await self._annotate(node, {"annotations": {SCALE_DOWN_DISABLED: "true"}})
        for node in list(islice(give_up, AT_ONCE)):
            if await self._annotate(node, {}):
                self._given_up.add(node.name)

    async def _annotate(self, node: NodeView, fields: Mapping[str, object]) -> bool:
        """Whether that is done. The API server compares the uid; what fails is tried again in the next cycle."""
        body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node.name, "uid": node.uid, **fields}}
        query = {"fieldManager": contract.PLANNER_MANAGER}  # not by force: who came first keeps his own
        try:
            answer = await self._writer.send("PATCH", f"/api/v1/nodes/{node.name}", body=body, query=query, content_type=APPLY)
        except (TryLater, NotSent) as error:
            _LOG.warning("node %s was not annotated: %s", node.name, error)
            return False
        if not answer.ok:
            _LOG.warning("node %s was not annotated: %d", node.name, answer.status)
        return answer.ok
