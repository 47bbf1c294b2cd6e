"""kube-scheduler's side of the wire: requests over HTTP to the verbs of one leader, without a socket."""

import copy
import json
from collections.abc import Mapping
from typing import Any

import httpx

from kompakt_core import contract as c
from kompakt_core.ids import NodeName
from kompakt_core.placement.model import NodeState, Rejection
from kompakt_extender.explain.queries import Queries
from kompakt_extender.health import health_app
from kompakt_extender.metrics import ExtenderMetrics
from kompakt_extender.rejections import FilterVerdict
from kompakt_extender.verbs import Inactive, verbs_app
from kompakt_extender.wire import BindingArgs, ExtenderArgs
from tests.support.client.reviewing import Reviewing
from tests.support.extender.guard import HEADERS, guarded_by
from tests.support.extender.leader import Leader
from tests.support.extender.made_objects import pod
from tests.support.extender.world import World


class Replica:
    """One replica of the extender: it answers as the leader, or as a standby once `active` is False."""

    def __init__(self, leader: Leader) -> None:
        self.leader = leader
        self.active = True
        self.trouble = self.stuck = self.unfit = ""

    def _require(self) -> None:
        if not self.active:
            raise Inactive("the scheduler's Lease is held by b_1, not by a")

    async def filter(self, args: ExtenderArgs) -> FilterVerdict:
        self._require()
        await self.leader.answers.prepare(args)
        return self.leader.answers.filter(args)

    def prioritize(self, args: ExtenderArgs) -> bytes:
        self._require()
        return self.leader.answers.prioritize(args)

    async def bind(self, args: BindingArgs) -> Rejection | None:
        self._require()
        return await self.leader.binder.bind(args)

    def queries(self) -> Queries:
        self._require()
        return self.leader.queries

    def states(self) -> Mapping[NodeName, NodeState]:
        return self.leader.ledger.snapshot().nodes if self.active else {}

    @property
    def unconfirmed_binds(self) -> int:
        return self.leader.ledger.unknown_binds if self.active else 0

    @property
    def gated_pods(self) -> int:
        return self.leader.jobs.gated_pods() if self.active else 0


class Scheduler:
    """kube-scheduler's side of the wire."""

    def __init__(self, replica: Replica) -> None:
        self.replica = replica
        self.leader = replica.leader
        self.metrics = ExtenderMetrics()
        self._verbs = httpx.AsyncClient(
            transport=httpx.ASGITransport(verbs_app(replica, self.metrics), raise_app_exceptions=False), base_url="http://x"
        )
        app = health_app(replica, self.metrics, guarded_by(Reviewing()))
        self._health = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://x", headers=HEADERS)

    async def post(self, verb: str, body: Any) -> httpx.Response:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return await self._verbs.post(f"/{verb}", content=content)

    async def request(self, method: str, path: str, **more: Any) -> httpx.Response:
        return await self._verbs.request(method, path, **more)

    async def get(self, path: str) -> httpx.Response:
        return await self._health.get(path)

    async def filter(self, name: str, *nodes: str) -> dict[str, Any]:
        found: dict[str, Any] = (await self.post("filter", self.args(name, *nodes))).json()
        return found

    async def scores(self, name: str, *nodes: str) -> dict[str, int]:
        """What kube-scheduler makes of prioritize's answer: a node that is not in it has 0."""
        args = self.args(name, *nodes)
        answer = await self.post("prioritize", args)
        assert answer.status_code == 200
        scores = {one["Host"]: one["Score"] for one in answer.json()}
        assert scores.keys() <= set(args["NodeNames"])
        assert all(scores.values()), "a 0 is left out"
        return dict.fromkeys(args["NodeNames"], 0) | scores

    def args(self, name: str, *nodes: str) -> dict[str, Any]:
        return {
            "Pod": copy.deepcopy(self.leader.world.pods[name]),
            "Nodes": None,
            "NodeNames": list(nodes or ("n0", "n1", "pcie")),
        }


def scheduling() -> Scheduler:
    """kube-scheduler before two DGX-1 (V100) and a machine without NVSwitch."""
    world = World()
    world.add_node("n0")
    world.add_node("n1")
    world.add_node("pcie", "a100-pcie-8-bridge-pairs")
    leader = Leader(world)
    leader.take_over()
    return Scheduler(Replica(leader))


def occupy(leader: Leader, name: str, node: str, *indices: int) -> None:
    notes = {c.ANN_GPUS: ",".join(f"GPU-{node}-{i}" for i in indices)}
    leader.add_pod(pod(name, len(indices), annotations=notes, nodeName=node))
