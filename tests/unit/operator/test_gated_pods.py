"""Which pods of gangs of others the operator counts as waiting behind our gate."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest

from kompakt_client.requests import ApiRequest
from kompakt_core import contract
from kompakt_operator.gated_pods import GatedPods, read_gated
from tests.support.operator.known import PlayedApi, PlayedStream

GATED: Mapping[str, Any] = {"schedulingGates": [{"name": "example.com/quota"}, {"name": contract.GATE}]}


def gang_pod(name: str = "p", spec: Mapping[str, Any] = GATED, phase: str = "Pending", **meta: Any) -> dict[str, Any]:
    own = {"name": name, "namespace": "ml", "uid": name, "labels": {contract.LABEL_GANG: "train"}, "resourceVersion": "7"}
    return {"kind": "Pod", "metadata": {**own, **meta}, "spec": dict(spec), "status": {"phase": phase}}


@pytest.mark.parametrize(
    ("pod", "counts"),
    [
        (gang_pod(), True),
        (gang_pod(spec={}), False),
        (gang_pod(spec={"schedulingGates": [{"name": "example.com/quota"}]}), False),
        (gang_pod(deletionTimestamp="2026-01-31T12:00:00Z"), False),
        (gang_pod(phase="Failed"), False),
    ],
    ids=["behind our gate", "released", "behind another gate", "on its way out", "over"],
)
def test_a_pod_counts_while_our_gate_holds_it(pod: dict[str, Any], counts: bool) -> None:
    assert bool(read_gated(json.dumps(pod).encode())) is counts


class SelectingApi(PlayedApi):
    """Remembers by which labels it was asked."""

    selectors: frozenset[object] = frozenset()

    def exchange(self, request: ApiRequest) -> Any:
        self.selectors |= {(request.query or {}).get("labelSelector")}
        return super().exchange(request)

    def watch(self, path: str, query: Mapping[str, str | int], silence: float) -> PlayedStream:
        self.selectors |= {query.get("labelSelector")}
        return super().watch(path, query, silence)


async def counted(gated: GatedPods, number: int) -> None:
    async with asyncio.timeout(10):
        while len(gated) != number:
            await asyncio.sleep(0.01)


async def test_they_are_counted_as_they_come_and_go() -> None:
    api = SelectingApi(pods=[gang_pod("a"), gang_pod("b", spec={})])
    gated = GatedPods(api)
    assert len(gated) == 0
    gated.start()
    try:
        await counted(gated, 1)
        api.show("pods", "ADDED", gang_pod("c"))
        await counted(gated, 2)
        api.show("pods", "MODIFIED", gang_pod("a", spec={}))
        await counted(gated, 1)
        api.show("pods", "DELETED", gang_pod("c"))
        await counted(gated, 0)
        assert api.selectors == {f"{contract.LABEL_GANG},!{contract.LABEL_JOB_UID}"}, "workers of TrainingJobs are not among them"
    finally:
        gated.stop()
