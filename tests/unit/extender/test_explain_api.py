"""The explain API: what it says of nodes, pods and requests is what the verbs do; and what it refuses."""

import asyncio
import json
from collections.abc import Callable, Iterator
from itertools import combinations
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kompakt_core import contract as c
from kompakt_core.contract.plan_record import PlanRecord
from kompakt_core.ids import JobUid
from kompakt_core.patterns.names import Pattern
from kompakt_core.placement.choose import choose
from kompakt_core.placement.model import Choice, Gang, GpuRequest, PlacementPolicy, Reason, Rejection
from kompakt_core.topology.machines import machine
from kompakt_extender.answers import Answers
from kompakt_extender.decide import Request
from kompakt_extender.explain.body_limit import MAX_BODY
from kompakt_extender.explain.bounded_executor import THREADS, WAITING
from kompakt_extender.explain.nodes import best_ring
from kompakt_extender.explain.pods import second_set
from kompakt_extender.gangs import placed_message, waiting_message
from kompakt_extender.wire import decode_args
from tests.support.extender.explain_client import SENSITIVE, ExplainClient, bound, explain_client
from tests.support.extender.leader import Leader
from tests.support.extender.made_objects import pod
from tests.support.extender.world import World


async def test_a_node_shows_its_links_its_free_gpus_and_who_has_the_others(client: ExplainClient) -> None:
    await bound(client.leader, "a", 2, "n0")
    found = await client.get("/nodes/n0")
    held = [gpu for gpu in found["gpuList"] if not gpu["free"]]
    assert [gpu["index"] for gpu in held] == sorted(set(range(8)) - set(found["free"]))
    assert all([h["name"] for h in gpu["holders"]] == ["a"] and gpu["holders"][0]["how"] == "Bound" for gpu in held)
    assert len(held) == 2
    assert found["freeMask"] == sum(1 << i for i in found["free"])
    graph = machine("dgx1-v100")
    assert [(one["a"], one["b"], one["megabytesPerSecond"]) for one in found["links"]] == [
        (link.a, link.b, link.megabytes_per_second) for link in graph.links
    ]
    assert (found["usable"], found["whyNot"]) == (True, [])


async def test_a_planned_pod_is_named_as_the_holder_of_what_is_promised_to_it(client: ExplainClient) -> None:
    await client.leader.place("j", 1, 4)
    planned = await client.get("/pods/default/j-worker-0-a1")
    assert planned["state"] == "Planned"
    node = await client.get(f"/nodes/{planned['node']}")
    holders = {h["name"]: h["how"] for gpu in node["gpuList"] for h in gpu["holders"]}
    assert holders == {"j-worker-0-a1": "Planned"}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"spec": {"unschedulable": True}}, "Cordoned"),
        ({"spec": {"taints": [{"key": "mine", "effect": "NoSchedule"}]}}, "Tainted"),
        ({"status": {"allocatable": {"cpu": "1", "memory": "1Gi", "pods": "9", c.RESOURCE: "7"}}}, "StaleTopology"),
        ({"status": {"conditions": [{"type": "Ready", "status": "False"}]}}, "NodeNotReady"),
    ],
)
async def test_an_unusable_node_says_why(change: dict[str, Any], reason: str, client: ExplainClient) -> None:
    world = client.leader.world
    made = world.nodes["n0"]
    for key, value in change.items():
        made[key] |= value
    world.put("nodes", "n0", made)
    client.leader.see()
    found = await client.get("/nodes")
    by_name = {one["name"]: one for one in found["items"]}
    assert reason in [why["reason"] for why in by_name["n0"]["whyNot"]]
    assert not by_name["n0"]["usable"]
    assert by_name["n1"]["usable"]
    assert reason in [one["reason"] for one in (await client.what_if(gpus=1))["rejections"]]


async def test_pages_of_nodes_hold_each_once() -> None:
    client = explain_client(*["dgx1-v100"] * 5)
    pages = [await client.get(f"/nodes?limit=2&after={after}") for after in ("", "n1", "n3")]
    assert [one["name"] for page in pages for one in page["items"]] == ["n0", "n1", "n2", "n3", "n4"]
    assert [(page["next"], page["total"]) for page in pages] == [("n1", 5), ("n3", 5), (None, 5)]


async def test_what_is_left_on_a_node_is_the_best_of_all_sets(client: ExplainClient) -> None:
    await bound(client.leader, "a", 3, "n0")
    found = await client.get("/nodes/n0")
    graph, free = machine("dgx1-v100"), found["free"]
    for one in found["bestLeft"]:
        sets = [sum(1 << i for i in chosen) for chosen in combinations(free, one["gpus"])]
        request = GpuRequest(Pattern.RING, PlacementPolicy.BEST)
        values = [made.value for mask in sets if isinstance(made := choose(graph, mask, one["gpus"], request), Choice)]
        assert one["value"] == max(values, default=0)
    assert [one["gpus"] for one in found["bestLeft"]] == [2, 4, 8]
    assert found["bestLeft"][2] == {"gpus": 8, "value": 0, "empty": found["bestLeft"][2]["empty"]}


async def test_what_is_left_is_told_of_large_machines_and_where_a_fabric_joins_partitions_only() -> None:
    client = explain_client("mi300x-8-cpx", "h800-8-shared")
    chips, parts = await client.get("/nodes/n0"), await client.get("/nodes/n1")
    assert [one["value"] for one in chips["bestLeft"]] == [662_500] * 3
    assert [one["value"] for one in parts["bestLeft"]] == [212_496] * 3
    await bound(client.leader, "a", 2, "n1")
    held = set(range(8)) - set((await client.get("/nodes/n1"))["free"])
    assert held in ({0, 1}, {2, 3}, {4, 5}, {6, 7}), "one partition of two"
    assert [one["value"] for one in (await client.get("/nodes/n1"))["bestLeft"]] == [212_496, 212_496, 0]
    shared = machine("h800-8-shared")
    assert best_ring(shared, sum(1 << i for i in (0, 2, 4, 6)), 2) == 6_000, "no two of one partition of two"


@settings(max_examples=8, deadline=None)
@given(
    gpus=st.integers(1, 8),
    pattern=st.sampled_from(["Ring", "Clique", "None"]),
    policy=st.sampled_from(["Best", "Preserve", "Packed", "First"]),
    sensitivity=st.sampled_from(["High", "Low"]),
    busy=st.lists(st.integers(1, 3), max_size=3),
)
async def test_what_if_foretells_filter_prioritize_and_bind(
    gpus: int, pattern: str, policy: str, sensitivity: str, busy: Any
) -> None:
    client = explain_client()
    leader = client.leader
    for number, size in enumerate(busy):
        await bound(leader, f"busy-{number}", size, f"n{number}")
    told = await client.what_if(gpus=gpus, pattern=pattern, policy=policy, sensitivity=sensitivity)
    notes = {c.ANN_PATTERN: pattern, c.ANN_POLICY: policy, c.ANN_SENSITIVITY: sensitivity}
    made = leader.world.add_pod(pod("p", gpus, annotations=notes))
    assert await client.what_if(pod=made) == told
    leader.see()
    body = decode_args(json.dumps({"Pod": made, "NodeNames": ["n0", "n1", "n2"]}).encode())
    answers = Answers(leader.ledger, leader.jobs)
    assert {one["node"] for one in told["offers"]} == set(answers.filter(body).node_names)
    scores = {one["Host"]: one["Score"] for one in json.loads(answers.prioritize(body))}
    assert all(scores.get(one["node"], 0) == one["score"] for one in told["offers"])
    if told["offers"]:
        best = told["offers"][0]
        assert await leader.bind("p", best["node"]) == ""
        notes = leader.annotations("p")
        assert notes[c.ANN_GPU_INDICES] == ",".join(map(str, best["gpus"]))
        assert notes[c.ANN_VALUE] == str(best["value"])


async def test_a_bound_pod_tells_its_choice_and_what_was_second_best(client: ExplainClient) -> None:
    leader = client.leader
    made = leader.add_pod(pod("p", 2, annotations=SENSITIVE))
    body = decode_args(json.dumps({"Pod": made, "NodeNames": ["n0", "n1", "n2"]}).encode())
    leader.answers.filter(body)
    leader.answers.prioritize(body)
    told = await client.what_if(gpus=2, pattern="Ring", sensitivity="High")
    assert [one["node"] for one in told["offers"]] == ["n2", "n0", "n1"]
    assert await leader.bind("p", "n2") == ""
    leader.see()
    found = await client.get("/pods/default/p")
    assert (found["state"], found["node"]) == ("Bound", "n2")
    decision = found["decision"]
    assert decision["freeBefore"] == list(range(8))
    assert decision["chosen"] == {"gpus": found["gpuIndices"], "value": found["value"]}
    assert found["ideal"] == told["ideal"] == found["value"]
    assert decision["secondNode"]["node"] in ("n0", "n1"), "both equal; n2 itself is no second"
    assert decision["secondNode"]["value"] == told["offers"][1]["value"] < found["value"]
    assert set(decision["secondSet"]["gpus"]) != set(decision["chosen"]["gpus"])
    assert decision["chosenBy"] == "Extender"
    assert "chosen for it" in found["message"]


async def test_a_corrected_pod_says_that_the_kubelet_decided(client: ExplainClient) -> None:
    leader = client.leader
    await bound(leader, "p", 2, "n0")
    made = leader.world.pods["p"]
    made["metadata"]["annotations"][c.ANN_GPUS] = "GPU-n0-6,GPU-n0-7"
    leader.add_pod(made)
    found = await client.get("/pods/default/p")
    assert "kubelet gave other GPUs" in found["message"]
    assert found["gpuIndices"] == [6, 7]
    assert "kompakt_extender_ledger_corrections_total 1.0" in (await client.http.get("/metrics")).text


async def test_a_gangs_pod_says_that_the_planner_chose(client: ExplainClient) -> None:
    leader = client.leader
    await leader.place("j", 2, 4)
    for number in (0, 1):
        name = f"j-worker-{number}-a1"
        node = leader.annotations(name)[c.ANN_PLANNED_NODE]
        assert await leader.bind(name, node) == ""
        leader.report(node)
    found = await client.get("/pods/default/j-worker-0-a1")
    assert found["decision"]["chosenBy"] == "Planner"
    assert found["decision"]["secondNode"] is None
    assert "whole gang" in found["decision"]["note"]
    assert found["job"] == "j"


async def test_a_waiting_pod_is_told_why_by_reason(client: ExplainClient) -> None:
    leader = client.leader
    await bound(leader, "a", 6, "n0")
    await leader.place("j", 3, 8)
    found = await client.get("/pods/default/j-worker-0-a1")
    assert (found["state"], found["fits"]) == ("Waiting", 2)
    assert found["rejections"] == [
        {"reason": "NotEnoughFreeGPUs", "message": "node(s) had too few free GPUs", "nodes": 1, "examples": ["n0"]}
    ]
    assert "room" in found["message"]
    of_job = await client.get("/jobs/default/j")
    assert (of_job["scheduling"]["state"], of_job["rejections"], of_job["fits"]) == ("Waiting", found["rejections"], 2)
    assert [(one["node"], one["free"], one["takes"]) for one in of_job["rooms"]] == [("n1", 8, 1), ("n2", 8, 1), ("n0", 2, 0)]
    assert of_job["rooms"][2]["message"].startswith("8 GPUs asked for, 2 free")
    assert [(one["asks"], one["gpus"]) for one in of_job["pods"]] == [(8, [])] * 3
    leader.add_pod(pod("p", 9, annotations=SENSITIVE))
    plain = await client.get("/pods/default/p")
    assert (plain["message"], plain["rejections"][0]["nodes"]) == ("no node can take it now", 3)


async def test_a_node_is_counted_with_all_workers_that_it_could_take(client: ExplainClient) -> None:
    await bound(client.leader, "a", 6, "n0")
    await client.leader.place("j", 13, 2)
    rooms = (await client.get("/jobs/default/j"))["rooms"]
    assert {one["node"]: (one["free"], one["takes"], one["message"]) for one in rooms} == {
        "n0": (2, 1, ""),
        "n1": (8, 4, ""),
        "n2": (8, 4, ""),
    }


async def test_what_not_even_the_empty_cluster_could_take_is_told(client: ExplainClient) -> None:
    found = await client.what_if(gpus=9)
    assert found["never"].startswith("one worker asks for 9 GPUs but the largest node has 8")
    await bound(client.leader, "a", 6, "n0")
    later = await client.what_if(gpus=8)
    assert (later["never"], [one["node"] for one in later["rooms"]]) == ("", ["n0"])


async def test_nodes_are_listed_with_the_pods_that_have_their_gpus(client: ExplainClient) -> None:
    await bound(client.leader, "a", 2, "n0")
    await bound(client.leader, "b", 3, "n0")
    first = (await client.get("/nodes?holders=true"))["items"][0]
    assert [(one["name"], one["gpus"], one["how"]) for one in first["heldBy"]] == [("b", 3, "Bound"), ("a", 2, "Bound")]
    assert (await client.get("/nodes"))["items"][0]["heldBy"] == []


@pytest.mark.parametrize("policy", PlacementPolicy)
@pytest.mark.parametrize("size", [1, 2, 5])
def test_the_second_set_ranks_right_behind_the_first(policy: PlacementPolicy, size: int) -> None:
    graph, free, request = machine("dgx1-v100"), 0b11101101, GpuRequest(Pattern.RING, policy, sensitive=True)
    first = choose(graph, free, size, request)
    assert isinstance(first, Choice)
    second = second_set(graph, free, Request(size, request), first.mask)
    assert second is not None
    if policy is PlacementPolicy.BEST:
        values = sorted(
            (made.value for s in combinations(range(8), size) if not (mask := sum(1 << i for i in s)) & ~free
             if isinstance(made := choose(graph, mask, size, request), Choice)),
            reverse=True,
        )  # fmt: skip
        assert [first.value, second.value] == values[:2]
    assert sum(1 << i for i in second.gpus) & ~free == 0
    assert second_set(graph, 0b11, Request(2, request), 0b11) is None


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({}, 400, "either gpus"),
        ({"gpus": 2, "pod": {}}, 400, "either gpus"),
        ({"gpus": 0}, 422, "gpus: Input should be greater than or equal to 1"),
        ({"gpus": 1 << 20}, 422, "gpus"),
        ({"gpus": 2, "pattern": "ring"}, 400, "'ring' is not known; right would be"),
        ({"gpus": 2, "size": 4}, 422, "size: Extra inputs are not permitted"),
        ({"gpus": 2, "limit": 100000}, 422, "limit"),
        ({"pod": {"spec": 3}}, 400, "not a pod's manifest"),
        ({"pod": pod("p", 0)}, 400, c.RESOURCE),
        ({"pod": pod("p", 1), "pattern": "Ring"}, 400, "pattern: with a pod"),
    ],
)
async def test_a_wrong_question_is_answered_with_a_sentence(
    body: dict[str, Any], status: int, words: str, client: ExplainClient
) -> None:
    assert words in await client.refused("/what-if", status, json=body)


async def test_unknown_names_standby_and_large_bodies_are_answered_with_a_sentence(client: ExplainClient) -> None:
    assert "'n9'" in await client.refused("/nodes/n9", 404)
    assert "default/p" in await client.refused("/pods/default/p", 404)
    assert "default/j" in await client.refused("/jobs/default/j", 404)
    assert "limit" in await client.refused("/nodes?limit=100000", 422)
    assert "256 KiB" in await client.refused("/what-if", 413, content=b" " * (MAX_BODY + 1))
    assert "JSON" in await client.refused("/what-if", 422, content=b"{", headers={"Content-Type": "application/json"})
    client.active = False
    assert "held by b_1" in await client.refused("/nodes", 503)


async def test_too_many_questions_at_once_are_turned_away_and_the_rest_is_answered(client: ExplainClient) -> None:
    answers = await asyncio.gather(*(client.http.get("/v1alpha1/nodes") for _ in range(40)))
    counts = {status: sum(a.status_code == status for a in answers) for status in (200, 429)}
    assert counts[200] + counts[429] == 40
    assert counts[200] >= THREADS + WAITING
    assert (await client.http.get("/v1alpha1/nodes")).status_code == 200


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
_FIELDS = st.sampled_from(["gpus", "pattern", "edges", "policy", "sensitivity", "requiredLink", "sameNUMANode", "pod", "limit"])


@pytest.fixture(scope="module")
def one_leader() -> Iterator[Callable[[bytes], httpx.Response]]:
    """what-if of one leader for many questions."""
    world = World()
    world.add_node("n0")
    with asyncio.Runner() as runner:
        client = ExplainClient(Leader(world))
        client.leader.take_over()
        headers = {"Content-Type": "application/json"}
        yield lambda body: runner.run(client.http.post("/v1alpha1/what-if", content=body, headers=headers))


@settings(max_examples=40, deadline=None)
@given(
    body=st.dictionaries(_FIELDS, _VALUES) | _VALUES,
    spec=st.dictionaries(st.sampled_from(["containers", "tolerations"]), _VALUES),
)
def test_no_body_makes_what_if_fail(one_leader: Callable[[bytes], httpx.Response], body: Any, spec: Any) -> None:
    for asked in (body, {"pod": {"metadata": body, "spec": spec}}):
        answer = one_leader(json.dumps(asked).encode())
        assert answer.status_code in (200, 400, 422), answer.text


@pytest.mark.parametrize("body", [b"{", b"\xff", b"[" * 100_000, b'{"gpus": 1e400}', b'{"gpus": ' + b"9" * 10_000 + b"}"])
def test_a_body_that_is_no_json_is_refused(one_leader: Callable[[bytes], httpx.Response], body: bytes) -> None:
    assert one_leader(body).status_code in (400, 422)


async def test_a_gang_that_waits_without_pods_is_explained_as_one_with_pods(client: ExplainClient) -> None:
    leader = client.leader
    nodes = len(leader.world.nodes)
    await leader.place("full", 1, 8)
    leader.world.add_expected_gang("large", nodes, 8)
    leader.world.add_gang("same", nodes, 8)
    await leader.settle()
    mine, other = await client.get("/jobs/default/large"), await client.get("/jobs/default/same")
    assert mine["workers"] == {"expected": nodes, "present": 0, "bound": 0}
    assert mine["pods"] == []
    for said in ("state", "message", "fits", "rejections", "rooms"):
        assert mine[said] == other[said]
    pod = await client.get("/pods/default/large-worker-1-a1")
    assert pod["message"] == (await client.get("/pods/default/same-worker-1-a1"))["message"]


async def test_pods_of_other_schedulers_and_other_gates_are_said_so(client: ExplainClient) -> None:
    leader = client.leader
    leader.world.add_pod(pod("other", 1, schedulerName="default-scheduler"))
    leader.world.add_pod(pod("gated", 1, schedulingGates=[{"name": "example.com/quota"}]))
    leader.add_pod(pod("none", 0))
    assert "another scheduler" in (await client.get("/pods/default/other"))["message"]
    assert "example.com/quota" in (await client.get("/pods/default/gated"))["message"]
    assert c.RESOURCE in (await client.get("/pods/default/none"))["message"]


QUEUED = {"type": "Reconciling", "reason": "WaitingForQuota", "message": "queue team-a: no quota"}


@pytest.mark.parametrize(
    ("status", "spec", "state"),
    [
        (
            {"conditions": [{"type": "Complete", "status": "True", "message": "all workers ended"}]},
            {},
            ("Complete", "all workers ended"),
        ),
        ({"conditions": [{"type": "Failed", "status": "True", "message": "exit code 3"}]}, {}, ("Failed", "exit code 3")),
        ({"conditions": [{"type": "Complete", "status": "False"}]}, {}, ("Released", "all workers have their places on 1 node")),
        ({}, {"suspend": True}, ("Suspended", "set it to false")),
        ({"conditions": [{**QUEUED, "status": "True"}]}, {}, ("WaitingForQuota", "queue team-a: no quota")),
        ({"conditions": [{**QUEUED, "status": "False"}]}, {}, ("Released", "all workers have their places on 1 node")),
    ],
)
async def test_how_a_job_ended_counts_for_more_than_its_plan(
    status: dict[str, Any], spec: dict[str, Any], state: tuple[str, str], client: ExplainClient
) -> None:
    leader = client.leader
    await leader.place("j", 2, 2)
    made = leader.world.jobs["j"]
    leader.world.put("jobs", "j", {**made, "spec": {**made["spec"], **spec}, "status": {**made["status"], **status}})
    await leader.settle()
    found = await client.get("/jobs/default/j")
    assert found["state"] == state[0]
    assert state[1] in found["message"]


async def test_a_gang_that_never_fits_tells_what_an_autoscaler_says(client: ExplainClient) -> None:
    leader = client.leader
    leader.world.add_expected_gang("huge", 9, 8)
    await leader.settle()
    made, words = leader.world.jobs["huge"], "ProvisioningRequest huge-a1: no node group has so many GPUs"
    told = [{**QUEUED, "status": "True", "reason": "WaitingForNodes", "message": words}]
    leader.world.put("jobs", "huge", {**made, "status": {**made["status"], "conditions": told}})
    await leader.settle()
    found = await client.get("/jobs/default/huge")
    assert found["scheduling"]["reason"] == "NeverFits"
    assert found["message"] == f"{found['scheduling']['message']}; {words}"


def test_a_gang_that_waits_names_what_else_it_demands() -> None:
    gang = Gang(JobUid("j"), 1, (), GpuRequest(required_link="NVLink", same_numa_node=True))
    told = waiting_message(Rejection(Reason.DOES_NOT_FIT_NOW, have=1, need=2), gang)
    assert told.startswith("there is no room for all workers now with requiredLink NVLink and sameNUMANode true; the gang waits")


@pytest.mark.parametrize(("pattern", "told"), [("None", "level Machine"), ("Ring", "level Machine, 25.0 of 50.0 GB/s")])
def test_a_gang_that_asks_for_no_bandwidth_is_told_of_none(pattern: str, told: str) -> None:
    ideal, value = (0, 0) if pattern == "None" else (50_000, 25_000)
    plan = PlanRecord("Machine", value, ideal, "2026-01-31T12:00:00Z", ())
    assert placed_message(plan).endswith(told)


async def test_gpus_that_somebody_else_gave_a_pod_are_those_that_its_node_reports(client: ExplainClient) -> None:
    leader, graph = client.leader, machine("dgx1-v100")
    made = leader.add_pod(pod("theirs", 2, schedulerName="default-scheduler", nodeName="n0"))
    unknown = await client.get("/pods/default/theirs")
    assert (unknown["gpus"], unknown["value"]) == ([], None)
    topology = leader.world.topologies["n0"]
    pair = [topology["spec"]["gpus"][index]["uuid"] for index in (0, 3)]
    topology["status"]["held"] = [{"uuid": uuid, "podUID": made["metadata"]["uid"]} for uuid in pair]
    leader.world.put("topologies", "n0", topology)
    leader.see()
    told = await client.get("/pods/default/theirs")
    assert (told["gpus"], told["gpuIndices"], told["message"]) == (pair, [0, 3], "bound to n0 by another scheduler")
    assert told["value"] == best_ring(graph, 0b1001, 2) > 0
