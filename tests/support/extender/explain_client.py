"""The user's side of the explain API, over one leader."""

from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import httpx
from fastapi import FastAPI

from kompakt_core import contract as c
from kompakt_core.ids import NodeName
from kompakt_core.placement.model import NodeState
from kompakt_extender.explain.queries import Queries
from kompakt_extender.health import health_app
from kompakt_extender.verbs import Inactive
from tests.support.client.reviewing import Reviewing
from tests.support.extender.guard import HEADERS, guarded_by
from tests.support.extender.leader import Leader
from tests.support.extender.made_objects import pod
from tests.support.extender.world import World

SENSITIVE = {c.ANN_PATTERN: "Ring", c.ANN_SENSITIVITY: "High"}


class ExplainClient:
    """Asks a replica of the extender: the leader, or a standby once `active` is False."""

    trouble = stuck = unfit = ""

    def __init__(self, leader: Leader) -> None:
        self.leader = leader
        self.active = True
        self.api_server = Reviewing()
        transport = httpx.ASGITransport(health_app(self, leader.metrics, guarded_by(self.api_server)))
        self.http = httpx.AsyncClient(transport=transport, base_url="http://x", headers=HEADERS)

    def queries(self) -> Queries:
        if not self.active:
            raise Inactive("the scheduler's Lease is held by b_1, not by a")
        return self.leader.queries

    def states(self) -> Mapping[NodeName, NodeState]:
        return self.leader.ledger.snapshot().nodes if self.active else {}

    @property
    def unconfirmed_binds(self) -> int:
        return self.leader.ledger.unknown_binds if self.active else 0

    @property
    def gated_pods(self) -> int:
        return self.leader.jobs.gated_pods() if self.active else 0

    async def get(self, path: str) -> dict[str, Any]:
        answer = await self.http.get(f"/v1alpha1{path}")
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    async def what_if(self, **asked: Any) -> dict[str, Any]:
        answer = await self.http.post("/v1alpha1/what-if", json=asked)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    async def refused(self, path: str, status: int, **request: Any) -> str:
        """The sentence of a refusal."""
        answer = await (self.http.post if request else self.http.get)(f"/v1alpha1{path}", **request)
        assert answer.status_code == status, answer.text
        assert set(answer.json()) == {"detail"}
        sentence: str = answer.json()["detail"]
        return sentence


def proxied(app: FastAPI, path: str, elsewhere: FastAPI) -> Callable[..., Coroutine[Any, Any, None]]:
    """`app` below a path that it is not told of, as behind the API server's service proxy; `elsewhere` for other paths."""

    async def outside(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and scope["path"].startswith(f"{path}/"):
            return await app({**scope, "path": scope["path"].removeprefix(path), "raw_path": b""}, receive, send)
        return await elsewhere(scope, receive, send)

    return outside


def explain_client(*machines: str) -> ExplainClient:
    """A client that asks about nodes n0, n1, ... of these machines (default: two dgx1-v100 and pcie)."""
    world = World()
    for number, kind in enumerate(machines or ("dgx1-v100", "dgx1-v100", "a100-pcie-8-bridge-pairs")):
        world.add_node(f"n{number}", kind)
    client = ExplainClient(Leader(world))
    client.leader.take_over()
    return client


async def bound(leader: Leader, name: str, gpus: int, node: str, **annotations: str) -> None:
    """A plain pod, bound as kube-scheduler would have it and reported by the node's plugin."""
    leader.add_pod(pod(name, gpus, annotations=annotations or SENSITIVE))
    assert await leader.bind(name, node) == ""
    leader.report(node)
