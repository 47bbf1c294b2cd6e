"""What Prometheus reads: parsed with its own parser, with help, units and bounded labels."""

import asyncio
from collections import defaultdict

from prometheus_client.parser import text_string_to_metric_families

from kompakt_core import contract as c
from kompakt_extender.fragmentation import FragmentationCollector
from tests.support.extender.explain_client import ExplainClient, bound, explain_client
from tests.support.extender.leader import may_not_read
from tests.support.extender.made_objects import gang_pod, pod
from tests.support.extender.scheduler import Replica, Scheduler

LABELS = {"verb", "reason", "outcome", "state", "resource", "pattern", "node", "gpus", "le"}


async def scrape(client: ExplainClient) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    """Samples by name and labels; fails where a family has no help."""
    answer = await client.http.get("/metrics")
    found: dict[str, dict[tuple[tuple[str, str], ...], float]] = defaultdict(dict)
    for family in text_string_to_metric_families(answer.text):
        assert family.documentation, family.name
        for sample in family.samples:
            key = tuple(sorted(sample.labels.items()))
            assert key not in found[sample.name], f"{sample.name} {key} appears twice"
            found[sample.name][key] = sample.value
    return found


async def test_all_figures_parse_and_no_label_grows_with_pods(client: ExplainClient) -> None:
    before = await scrape(client)
    for number in range(3):
        await bound(client.leader, f"p{number}", 2, "n0")
    after = await scrape(client)
    labels = {name for series in after.values() for key in series for name, _ in key}
    assert labels <= LABELS
    grown = {name for name in after if len(after[name]) > len(before.get(name, {}))}
    assert grown <= {f"kompakt_extender_{n}" for n in ("binds_total", "binds_created")} | {
        f"kompakt_extender_bind_value_ratio_{n}" for n in ("bucket", "sum", "count", "created")
    }
    assert "kompakt_extender_ledger_corrections_total" in after
    assert after["process_resident_memory_bytes"][()] > 1e6


async def test_units_stand_in_names_and_helps(client: ExplainClient) -> None:
    for family in text_string_to_metric_families((await client.http.get("/metrics")).text):
        if family.name.startswith("kompakt") and family.name.endswith("_seconds"):
            assert "seconds" in family.documentation
        if family.name.endswith("bytes_per_second"):
            assert "bytes per second" in family.documentation


async def test_what_is_left_per_node_follows_the_free_gpus(client: ExplainClient) -> None:
    empty = (await scrape(client))["kompakt_node_ring_left_bytes_per_second"]
    assert len(empty) == 9, "three nodes, sizes 2, 4 and 8"
    await bound(client.leader, "p", 5, "n0")
    now = await scrape(client)
    left = now["kompakt_node_ring_left_bytes_per_second"]
    shown = {one["gpus"]: one["value"] for one in (await client.get("/nodes/n0"))["bestLeft"]}
    for size in (2, 4, 8):
        assert left[("gpus", str(size)), ("node", "n0")] == shown[size] * 1e6
        assert left[("gpus", str(size)), ("node", "n1")] == empty[("gpus", str(size)), ("node", "n1")]
    assert left[("gpus", "4"), ("node", "n0")] == 0
    ideal = now["kompakt_ring_ideal_bytes_per_second"]
    assert ideal[(("gpus", "2"),)] == max(empty[("gpus", "2"), ("node", n)] for n in ("n0", "n1", "n2"))
    client.active = False
    assert "kompakt_node_ring_left_bytes_per_second" not in await scrape(client), "a standby knows no nodes"


async def test_the_share_of_the_ideal_is_observed_at_bind(client: ExplainClient) -> None:
    leader = client.leader
    await bound(leader, "best", 2, "n2")
    await bound(leader, "worse", 2, "n0")
    await bound(leader, "alone", 1, "n1")
    shares = await scrape(client)
    ring = (("pattern", "Ring"),)
    assert shares["kompakt_extender_bind_value_ratio_count"][ring] == 2, "one GPU has no value to share"
    worse, best = (int(leader.annotations(name)[c.ANN_VALUE]) for name in ("worse", "best"))
    assert abs(shares["kompakt_extender_bind_value_ratio_sum"][ring] - (1 + worse / best)) < 1e-9


async def test_rejections_are_counted_by_reason_of_filter_and_bind(client: ExplainClient) -> None:
    leader = client.leader
    queries = Replica(leader)
    scheduler = Scheduler(queries)
    await bound(leader, "a", 6, "n0")
    leader.add_pod(pod("p", 4))
    await scheduler.filter("p", "n0", "n1", "gone")
    text = (await scheduler.get("/metrics")).text
    assert 'kompakt_extender_rejections_total{reason="NotEnoughFreeGPUs",verb="filter"} 1.0' in text
    assert 'kompakt_extender_rejections_total{reason="UnknownNode",verb="filter"} 1.0' in text
    binding = {"PodName": "p", "PodNamespace": "default", "PodUID": "uid-p", "Node": "n0"}
    await scheduler.post("bind", binding)
    assert '{reason="NotEnoughFreeGPUs",verb="bind"} 1.0' in (await scheduler.get("/metrics")).text


async def test_a_bind_is_unconfirmed_until_its_outcome_is_known_and_no_longer(client: ExplainClient) -> None:
    async def unconfirmed() -> float:
        return (await scrape(client))["kompakt_extender_unconfirmed_binds"][()]

    leader = client.leader
    leader.add_pod(pod("p", 4))
    leader.world.outcomes.append("lost")
    may_not_read(leader, 3)
    assert "not known" in await leader.bind("p", "n0")
    assert await unconfirmed() == 1
    leader.world.delete_pod("p")
    for _ in range(20):
        await asyncio.sleep(0)
    assert await unconfirmed() == 0


async def test_equal_nodes_are_computed_once() -> None:
    client = explain_client(*["dgx1-v100"] * 20)
    collector = FragmentationCollector()
    collector.look(client.states())
    (left, _) = collector.collect()
    assert len(left.samples) == 60
    assert len(collector._known) == 1
    collector.look({})
    list(collector.collect())
    assert collector._known == {}


async def test_pods_behind_our_gate_count_once_their_gang_has_an_object(client: ExplainClient) -> None:
    async def counted() -> float:
        return (await scrape(client))["kompakt_planner_gated_pods"][()]

    leader = client.leader
    leader.world.add_pod(gang_pod("train", 0, 3))
    leader.world.add_pod(gang_pod("train", 1, 3))
    not_ours = {"schedulerName": "another", "schedulingGates": [{"name": c.GATE}]}
    leader.world.add_pod(gang_pod("elsewhere", 0, 2) | {"spec": not_ours})
    leader.see()
    assert await counted() == 0, "the planner cannot write a plan yet"
    await leader.settle()
    assert await counted() == 2
    client.active = False
    assert await counted() == 0, "a standby looks after nothing"
    client.active = True
    leader.world.add_pod(gang_pod("train", 2, 3))
    await leader.settle()
    assert await counted() == 0, "they have their places"
