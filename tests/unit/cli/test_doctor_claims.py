"""`kompakt doctor` where a driver hands out GPUs by claims that the planner writes."""

from dataclasses import replace
from typing import Any

from kompakt_cli import doctor_cluster, doctor_rights
from kompakt_cli.doctor_claims import CHECK
from kompakt_cli.doctor_reading import Item, Unread
from kompakt_cli.finding import Finding, Health
from kompakt_core.contract import gpu_claim
from tests.support.cli.well_cluster import WELL, node, part, plugin, pod, topology, unwell

DRIVER = "gpu.nvidia.com"
DEPLOYMENTS = (
    part("operator"),
    part("scheduler", args=[f"--device-class={DRIVER}", f"--dra-driver={DRIVER}", "--device-key=uuid"]),
)
NEEDED = doctor_rights.accounts_rights(DEPLOYMENTS)
BARE: Item = {**node(), "status": {}}
TAINT = {"key": f"{DRIVER}/xid", "value": "79", "effect": "NoSchedule"}


def slice_of(count: int = 8, key: str = "uuid", **taints: Any) -> Item:
    """The first devices of the node of WELL; `taints` by the device's name without its dash."""
    gpus = topology()["spec"]["gpus"][:count]
    devices = [{"name": f"gpu-{index}", "attributes": {key: {"string": gpu["uuid"]}}} for index, gpu in enumerate(gpus)]
    tainted = [{**one, "taints": taints.get(str(one["name"]).replace("-", ""))} for one in devices]
    return {"spec": {"driver": DRIVER, "nodeName": "dgx-0", "pool": {"name": "dgx-0", "generation": 1}, "devices": tainted}}


CLAIMING = replace(
    WELL,
    deployments=DEPLOYMENTS,
    daemonsets=(plugin("--allocation=report"),),
    nodes=(BARE,),
    pods=(pod("theirs", 900, "default-scheduler"),),
    rights=dict.fromkeys((*doctor_rights.own_rights("team", "kompakt-system"), *NEEDED), True),
    device_classes=({"metadata": {"name": DRIVER}},),
    slices=(slice_of(),),
)


def test_where_gpus_come_by_claims_no_node_need_offer_any_by_number() -> None:
    claiming = CLAIMING
    assert unwell(claiming) == []
    found = [one.found for one in doctor_cluster.findings(claiming)]
    assert "1 nodes have GPUs, given by ResourceClaims" in found
    assert f"{DRIVER} publishes every GPU" in found
    asked = {(one.verb, one.resource) for one in NEEDED}
    assert ("create", "resourceclaims") in asked
    assert ("create", "pods/binding") not in asked
    (silent,) = unwell(replace(claiming, topologies=()))
    assert (silent.check, silent.health) == ("GPU nodes", Health.PROBLEM)
    (nobody,) = unwell(replace(claiming, leases=claiming.leases[:1]))
    assert nobody.check == "Lease kompakt-scheduler"
    late = pod("late", 900, "default-scheduler")
    late["metadata"]["annotations"] = gpu_claim.encode_size(1)
    (waits,) = unwell(replace(claiming, pods=(late,)))
    assert "team/late" in waits.found


def only(**changed: Any) -> Finding:
    """The one finding that is not ok."""
    (found,) = unwell(replace(CLAIMING, **changed))
    assert found.check == CHECK
    return found


def test_a_class_that_is_not_there() -> None:
    found = only(device_classes=({"metadata": {"name": "gpu.example.com"}},))
    assert found.health is Health.PROBLEM
    assert f"no DeviceClass {DRIVER}" in found.found
    assert "resourceClaims.deviceClass" in found.cure


def test_gpus_that_the_driver_does_not_publish() -> None:
    found = only(slices=(slice_of(6),))
    assert (found.health, "dgx-0 (2)" in found.found) == (Health.PROBLEM, True)
    assert "dgx-0 (8)" in only(slices=()).found
    assert "resourceClaims.key (uuid)" in only(slices=(slice_of(key="serial"),)).cure


def test_gpus_with_a_taint() -> None:
    found = only(slices=(slice_of(gpu3=[TAINT]),))
    assert (found.health, "dgx-0 GPU 3" in found.found) == (Health.WARNING, True)
    rule = {"spec": {"deviceSelector": {"pool": "dgx-0", "device": "gpu-5"}, "taint": {"key": "k", "effect": "NoExecute"}}}
    assert "dgx-0 GPU 5" in only(taint_rules=(rule,)).found
    assert "dgx-0 GPU 5" in only(taint_rules=(rule,), slices=(slice_of(gpu5=[TAINT]),)).found


def test_without_the_right_to_look_and_where_there_are_no_claims_nothing_is_said() -> None:
    assert only(slices=Unread("list resourceslices", "forbidden")).health is Health.NOT_CHECKED
    assert not any(one.check == CHECK for one in doctor_cluster.findings(WELL))
