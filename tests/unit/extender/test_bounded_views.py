"""What the extender keeps of pods does not grow with what strangers write into them."""

import json
from typing import Any

import msgspec
import pytest

from kompakt_core import contract as c
from kompakt_core.placement.model import Reason, Selector, Toleration
from kompakt_extender.gangs import worker_of
from kompakt_extender.objects import Pod
from kompakt_extender.project import read_pod
from kompakt_extender.views import PodView
from kompakt_extender.wire import ExtenderArgs
from tests.support.extender.leader import Leader
from tests.support.extender.made_objects import pod, worker

SMALL = 2000  # bytes


def wide(values: int) -> dict[str, Any]:
    """Required node affinity with so many values."""
    names = [f"n{number}" for number in range(values)]
    expressions = [{"key": "kubernetes.io/hostname", "operator": "In", "values": names}]
    terms = {"nodeSelectorTerms": [{"matchExpressions": expressions}]}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}


def many(terms: int) -> dict[str, Any]:
    """Required node affinity with so many terms, of which each node would have to be compared with all."""
    found = [{"matchExpressions": [{"key": f"k{number}", "operator": "Exists"}]} for number in range(terms)]
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": found}}}}


HUGE = wide(100_000)
NOTES = {f"kompakt.dev/own-{number}": "x" * 1000 for number in range(200)}


def view(made: dict[str, Any]) -> PodView:
    return read_pod(json.dumps(made).encode())


def size(made: dict[str, Any]) -> int:
    return len(msgspec.json.encode(view(made)))


def stranger(**more: Any) -> dict[str, Any]:
    made = pod("stranger", 0, annotations=NOTES, **{"schedulerName": "default-scheduler", **more})
    del made["spec"]["containers"][0]["resources"]["requests"][c.RESOURCE]
    made["metadata"]["labels"] = {f"kompakt.dev/label-{number}": "x" for number in range(5000)}
    return made


@pytest.mark.parametrize(
    "made",
    [
        pytest.param(stranger(**HUGE), id="of another scheduler, without GPUs"),
        pytest.param(stranger(schedulerName=c.SCHEDULER_NAME, **HUGE), id="of ours, without GPUs"),
        pytest.param(stranger(tolerations=[{"key": f"k{n}", "operator": "Exists"} for n in range(30_000)]), id="tolerations"),
        pytest.param(stranger(nodeSelector={f"k{n}": "v" for n in range(30_000)}), id="node selector"),
        pytest.param(stranger(schedulingGates=[{"name": f"example.com/g{n}"} for n in range(30_000)]), id="gates"),
        pytest.param(pod("plain", 1, annotations=NOTES, **HUGE), id="waiting for GPUs, more than is read"),
        pytest.param(pod("plain", 1, annotations=NOTES), id="waiting for GPUs, annotations of no meaning"),
        pytest.param(pod("plain", 1, annotations={c.ANN_EDGES: "0-1," * 50_000}), id="waiting for GPUs, edges"),
        pytest.param(pod("plain", 1, nodeName="n0", **wide(1000)), id="bound"),
        pytest.param({**pod("plain", 1, **wide(1000)), "status": {"phase": "Succeeded"}}, id="finished"),
        pytest.param(worker("j", 0, schedulerName="default-scheduler", **HUGE), id="with our labels, of another scheduler"),
    ],
)
def test_what_is_kept_of_a_pod_is_small(made: dict[str, Any]) -> None:
    assert size(made) < SMALL < len(json.dumps(made))


def test_our_own_gate_is_seen_behind_many_others() -> None:
    gates = [{"name": f"example.com/g{number}"} for number in range(100)]
    found = view(pod("plain", 1, schedulingGates=[*gates, {"name": c.GATE}]))
    assert found.gated
    assert len(found.gates) < 10


def test_what_a_waiting_pod_asks_of_nodes_is_read_as_before() -> None:
    made = pod("plain", 1, nodeSelector={"a": "b"}, tolerations=[{"key": "t", "operator": "Exists"}], **wide(2))
    found = worker_of(view(made))
    assert found.node_selector == {"a": "b"}
    assert found.affinity == ((Selector("kubernetes.io/hostname", "In", ("n0", "n1")),),)
    assert found.tolerations == (Toleration("t", "Exists"),)


def test_workers_of_a_role_share_one_copy_of_their_rules() -> None:
    first, second = (view(worker("j", index, **wide(100))) for index in range(2))
    assert first.rules
    assert first.rules is second.rules


@pytest.mark.parametrize("rules", [HUGE, many(12_000)], ids=["values", "terms"])
async def test_a_gang_with_more_rules_than_are_read_is_refused_with_a_sentence(leader: Leader, rules: dict[str, Any]) -> None:
    await leader.place("j", 2, 2, **rules)
    found = leader.scheduling("j")
    assert (found["state"], found["reason"]) == ("Waiting", "InvalidRequest")
    assert "at most 32768 are read: give the nodes that are meant a label" in found["message"]


async def test_a_plain_pod_with_more_rules_than_are_read_is_refused_with_the_same(leader: Leader) -> None:
    args = ExtenderArgs(msgspec.json.decode(json.dumps(pod("plain", 1, **HUGE)), type=Pod), ["n0"], None)
    rejection = leader.answers.filter(args).rejected["n0"]
    assert rejection.reason is Reason.INVALID_REQUEST
    assert "at most 32768 are read" in rejection.detail
